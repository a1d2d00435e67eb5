#include "checkpoint/quantized_config.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "base/json_reading.h"

namespace gimbal {
namespace {

namespace json = boost::json;

bool is_int4_config(const json::value* value) {
  const json::object* object = value == nullptr ? nullptr : value->if_object();
  const json::value* method = object == nullptr ? nullptr : object->if_contains("quant_method");
  return method != nullptr && method->is_string() && method->get_string() == "compressed-tensors";
}

json::object make_int4_config() {
  const json::object weights = {{"num_bits", 4},    {"type", "int"},    {"symmetric", true},   {"strategy", "group"},
                                {"group_size", 32}, {"dynamic", false}, {"actorder", nullptr}, {"observer", "minmax"}};
  const json::object group = {{"targets", json::array{"Linear"}},
                              {"input_activations", nullptr},
                              {"output_activations", nullptr},
                              {"weights", weights}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"config_groups", json::object{{"group_0", group}}},
          {"ignore", json::array{"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                                 "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}}};
}

json::object make_float8_config() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", json::array{128, 128}}};
}

}  // namespace

Result<std::string> requantize_config(std::string_view config_text, std::string_view quantization) {
  GIMBAL_ASSIGN_OR_RETURN(json::value document, parse_json(config_text, "config.json"));
  json::object* root = document.if_object();
  if (root == nullptr) return fail(Error::invalid("config.json must hold a JSON object.", "--model-config"));
  json::value* nested = root->if_contains("text_config");
  json::object& text = nested != nullptr && nested->is_object() ? nested->get_object() : *root;
  if (quantization == "int4") {
    if (is_int4_config(text.if_contains("quantization_config"))) {
      if (&text != root) root->erase("quantization_config");
      return json::serialize(document);
    }
    if (&text != root && is_int4_config(root->if_contains("quantization_config"))) {
      text["quantization_config"] = json::value(root->at("quantization_config"));
    } else {
      text["quantization_config"] = make_int4_config();
    }
  } else if (quantization == "fp8") {
    text["quantization_config"] = make_float8_config();
  } else if (quantization == "bf16") {
    text.erase("quantization_config");
  } else {
    return fail(
        Error::invalid(fmt::format("--quantization {} is not offered; offered are int4, bf16 and fp8.", quantization),
                       "--quantization"));
  }
  if (&text != root) root->erase("quantization_config");
  return json::serialize(document);
}

}  // namespace gimbal
