#include "model_config/rope_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>

namespace gimbal {
namespace {

constexpr double kLargestTheta = 1e12;

// What one spelling of the rope object says. Theta is nullopt when the object does not hold it.
struct RopeObject {
  RopeConfig config;
  std::optional<double> theta;
};

void read_yarn(ConfigReader& rope, RopeConfig& config, std::vector<std::string>& notes) {
  const std::optional<double> factor = rope.number("factor", 1.0, 1e6);
  if (!factor) rope.violate("factor", "is missing", "a number from 1 to 1000000");
  config.factor = factor.value_or(1.0);
  config.original_max_position =
      rope.required_integer("original_max_position_embeddings", {.least = 1, .most = int64_t{1} << 40});
  const auto or_default = [&](const char* key, double otherwise, double least) {
    const std::optional<double> value = rope.number(key, least, 1e6);
    if (!value) notes.push_back(fmt::format("config.json: {}{} is absent, {} is used", rope.path(), key, otherwise));
    return value.value_or(otherwise);
  };
  config.beta_fast = or_default("beta_fast", 32.0, 1e-6);
  config.beta_slow = or_default("beta_slow", 1.0, 1e-6);
  config.mscale = or_default("mscale", 1.0, 0.0);
  config.mscale_all_dim = or_default("mscale_all_dim", 0.0, 0.0);
  if (rope.has("attention_factor")) {
    rope.violate("attention_factor", "is " + shown(*rope.find("attention_factor")), "absent or null (mscale decides)");
  }
  if (!rope.boolean_or("truncate", true)) rope.violate("truncate", "is false", "absent or true");
}

RopeObject read_rope_object(const boost::json::value& value, const std::string& key, ConfigReader& outer,
                            Violations& violations, std::vector<std::string>& notes) {
  RopeObject result;
  if (!value.is_object()) {
    outer.violate(key, "is " + shown(value), "an object or null");
    return result;
  }
  ConfigReader rope(value.get_object(), outer.path() + key + ".", violations);
  const char* kind_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::optional<std::string> type = rope.string("type");
  const std::optional<std::string> rope_type = rope.string("rope_type");
  if (type && rope_type && *type != *rope_type) {
    rope.violate("type", fmt::format("is '{}' but rope_type is '{}'", *type, *rope_type), "one of them, or both equal");
  }
  const std::string kind = rope_type.value_or(type.value_or(""));
  result.theta = rope.number("rope_theta", 1.0, kLargestTheta);
  if (kind == "yarn") {
    result.config.kind = RopeConfig::Kind::kYarn;
    read_yarn(rope, result.config, notes);
  } else if (kind != "default") {
    rope.violate(kind_key, kind.empty() ? "is missing" : fmt::format("'{}' is not known to this build", kind),
                 "'yarn', 'default'");
    return result;
  }
  if (const auto unknown = rope.unknown_keys(); !unknown.empty()) {
    violations.push_back(
        fmt::format("{}: not known to this build, and it would change the rotation; allowed: the published yarn keys",
                    fmt::join(unknown, ", ")));
  }
  return result;
}

bool is_same(const RopeConfig& a, const RopeConfig& b) {
  return a.kind == b.kind && a.factor == b.factor && a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow &&
         a.mscale == b.mscale && a.mscale_all_dim == b.mscale_all_dim &&
         a.original_max_position == b.original_max_position;
}

double mscale_of(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// The pair index at which a rotation turns `rotations` times over the original context.
double correction_index(const ModelConfig& config, double rotations) {
  const auto dim = static_cast<double>(config.qk_rope_head_dim);
  const auto length = static_cast<double>(config.rope.original_max_position);
  return dim * std::log(length / (rotations * 2.0 * M_PI)) / (2.0 * std::log(config.rope.theta));
}

}  // namespace

RopeConfig read_rope_config(ConfigReader& reader, Violations& violations, std::vector<std::string>& notes) {
  std::optional<double> theta = reader.number("rope_theta", 1.0, kLargestTheta);
  std::optional<RopeObject> chosen;
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    const boost::json::value* value = reader.find(key);
    if (value == nullptr) continue;
    RopeObject read = read_rope_object(*value, key, reader, violations, notes);
    if (chosen && !is_same(chosen->config, read.config)) {
      reader.violate(key, "differs from rope_scaling", "one of the two, or both with the same meaning");
    }
    const std::optional<double> inner = read.theta;
    if (inner && theta && *inner != *theta) {
      reader.violate(key, fmt::format("says rope_theta {} but {} stands elsewhere", *inner, *theta), "one value");
    }
    if (inner) theta = inner;
    chosen = std::move(read);
  }
  RopeConfig config = chosen ? chosen->config : RopeConfig();
  if (!theta) notes.push_back(fmt::format("config.json: rope_theta is absent, {} is used", config.theta));
  config.theta = theta.value_or(config.theta);
  if (config.kind == RopeConfig::Kind::kYarn && config.theta <= 1.0)
    reader.violate("rope_theta", "is 1", "more than 1 with yarn");
  return config;
}

double attention_softmax_scale(const ModelConfig& config) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.qk_head_dim()));
  if (config.rope.kind != RopeConfig::Kind::kYarn || config.rope.mscale_all_dim == 0.0) return scale;
  const double mscale = mscale_of(config.rope.factor, config.rope.mscale_all_dim);
  return scale * mscale * mscale;
}

double rope_amplitude(const ModelConfig& config) {
  if (config.rope.kind != RopeConfig::Kind::kYarn) return 1.0;
  return mscale_of(config.rope.factor, config.rope.mscale) / mscale_of(config.rope.factor, config.rope.mscale_all_dim);
}

std::vector<double> rope_frequencies(const ModelConfig& config) {
  const int64_t dim = config.qk_rope_head_dim;
  std::vector<double> frequencies;
  double low = 0.0, high = 0.0;
  if (config.rope.kind == RopeConfig::Kind::kYarn) {
    low = std::max(std::floor(correction_index(config, config.rope.beta_fast)), 0.0);
    high = std::min(std::ceil(correction_index(config, config.rope.beta_slow)), static_cast<double>(dim - 1));
    if (low == high) high += 0.001;
  }
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double frequency = std::pow(config.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (config.rope.kind != RopeConfig::Kind::kYarn) {
      frequencies.push_back(frequency);
      continue;
    }
    const double ramp = std::min(std::max((static_cast<double>(i) - low) / (high - low), 0.0), 1.0);
    frequencies.push_back(frequency * (1.0 - ramp) + frequency / config.rope.factor * ramp);
  }
  return frequencies;
}

}  // namespace gimbal
