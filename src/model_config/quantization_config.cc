#include "model_config/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gimbal {
namespace {

void require_string(ConfigReader& reader, const char* key, const char* only) {
  const std::optional<std::string> value = reader.string(key);
  if (value && *value != only) reader.violate(key, "is '" + *value + "'", fmt::format("'{}'", only));
}

void require_null(ConfigReader& reader, const char* key) {
  if (const boost::json::value* value = reader.find(key)) reader.violate(key, "is " + shown(*value), "null");
}

void read_group_weights(ConfigReader& weights, QuantizationConfig& config) {
  config.num_bits = static_cast<int>(weights.required_integer("num_bits", {.least = 1, .most = 16}));
  if (config.num_bits != 4 && config.num_bits != 8) {
    weights.violate("num_bits", fmt::format("is {}", config.num_bits),
                    "4 (8 is read only to name the tensors that contradict it)");
  }
  config.group_size = static_cast<int>(weights.required_integer("group_size", {.least = 1, .most = 4096}));
  constexpr std::array<int, 4> kGroupSizes = {16, 32, 64, 128};
  if (std::find(kGroupSizes.begin(), kGroupSizes.end(), config.group_size) == kGroupSizes.end()) {
    weights.violate("group_size", fmt::format("is {}", config.group_size), "16, 32, 64 or 128");
    config.group_size = 32;
  }
  require_string(weights, "type", "int");
  require_string(weights, "strategy", "group");
  require_null(weights, "actorder");
  if (!weights.boolean_or("symmetric", true)) weights.violate("symmetric", "is false", "true (no zero points)");
  if (weights.boolean_or("dynamic", false)) weights.violate("dynamic", "is true", "false");
}

void read_groups(ConfigReader& reader, QuantizationConfig& config, Violations& violations) {
  const boost::json::value* groups = reader.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->get_object().size() != 1) {
    reader.violate("config_groups", groups == nullptr ? "is missing" : "is not an object with one group",
                   "an object with one group");
    return;
  }
  const auto& [name, group] = *groups->get_object().begin();
  const std::string path = fmt::format("{}config_groups.{}.", reader.path(), std::string_view(name));
  if (!group.is_object()) {
    reader.violate("config_groups", "is " + shown(*groups), "an object of groups");
    return;
  }
  ConfigReader group_reader(group.get_object(), path, violations);
  for (const char* key : {"input_activations", "output_activations"}) require_null(group_reader, key);
  const boost::json::value* weights = group_reader.find("weights");
  if (weights == nullptr || !weights->is_object()) {
    group_reader.violate("weights", "is missing or not an object", "an object");
    return;
  }
  ConfigReader weights_reader(weights->get_object(), path + "weights.", violations);
  read_group_weights(weights_reader, config);
}

void read_ignore(ConfigReader& reader, QuantizationConfig& config) {
  const boost::json::value* ignore = reader.find("ignore");
  if (ignore == nullptr) return;
  std::vector<std::string> entries;
  bool is_list_of_strings = ignore->is_array();
  if (is_list_of_strings) {
    for (const boost::json::value& entry : ignore->get_array()) {
      is_list_of_strings = is_list_of_strings && entry.is_string();
      if (entry.is_string()) entries.emplace_back(entry.get_string());
    }
  }
  if (!is_list_of_strings) return reader.violate("ignore", "is " + shown(*ignore), "a list of strings");
  Result<ModulePatterns> patterns = ModulePatterns::compile(entries);
  if (!patterns) return reader.violate("ignore", patterns.error().message, "module names and regular expressions");
  config.ignore = std::move(*patterns);
}

void read_blocks(ConfigReader& reader, QuantizationConfig& config) {
  require_string(reader, "fmt", "e4m3");
  require_string(reader, "activation_scheme", "dynamic");
  const boost::json::value* size = reader.find("weight_block_size");
  const bool is_known = size != nullptr && size->is_array() && size->get_array().size() == 2 &&
                        size->get_array()[0] == 128 && size->get_array()[1] == 128;
  if (!is_known)
    reader.violate("weight_block_size", size == nullptr ? "is missing" : "is " + shown(*size), "[128, 128]");
  config.block_rows = config.block_columns = 128;
}

}  // namespace

QuantizationConfig read_quantization_config(const boost::json::value& value, const std::string& path,
                                            Violations& violations) {
  QuantizationConfig config;
  if (!value.is_object()) {
    violations.push_back(fmt::format("{} is {}; allowed: an object or null", path, shown(value)));
    return config;
  }
  ConfigReader reader(value.get_object(), path + ".", violations);
  const std::string method = reader.string("quant_method").value_or("");
  require_null(reader, "kv_cache_scheme");
  if (method == "compressed-tensors") {
    config.method = QuantizationConfig::Method::kInt4Group;
    require_string(reader, "format", "pack-quantized");
    require_string(reader, "quantization_status", "compressed");
    read_groups(reader, config, violations);
    read_ignore(reader, config);
  } else if (method == "fp8") {
    config.method = QuantizationConfig::Method::kFloat8Block;
    read_blocks(reader, config);
  } else {
    reader.violate("quant_method", method.empty() ? "is missing" : "is '" + method + "'",
                   "'compressed-tensors' (pack-quantized int4), 'fp8' (e4m3 in blocks)");
  }
  return config;
}

}  // namespace gimbal
