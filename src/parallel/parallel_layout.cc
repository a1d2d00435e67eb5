#include "parallel/parallel_layout.h"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gimbal {
namespace {

constexpr std::string_view kGrammar =
    "Names are built from pp<N> (stages), dp<N> (attention data parallel), tp<N> (attention tensor parallel), ep<N> "
    "(expert parallel) or tep<N>, for example single, tp8, pp8, ep8, tep8, pp2tp4, pp2ep4, tp4ep2, dp2tp4ep8; suffixes "
    ":none :direct :mpi, :normal :low_latency :auto, :dense1, :layers5,3";

struct Sizes {
  std::optional<int64_t> pp, dp, tp, ep, tep;
};

Error bad_name(std::string_view name, std::string_view why) {
  return Error::invalid(fmt::format("Layout '{}': {}. {}.", name.substr(0, 80), why, kGrammar), "--layout");
}

std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end == text.data() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

Result<Sizes> read_sizes(std::string_view name, std::string_view text) {
  Sizes sizes;
  const std::array<std::pair<std::string_view, std::optional<int64_t>*>, 5> parts = {
      {{"tep", &sizes.tep}, {"pp", &sizes.pp}, {"dp", &sizes.dp}, {"tp", &sizes.tp}, {"ep", &sizes.ep}}};
  if (text == "single") return sizes;
  if (text.empty()) return fail(bad_name(name, "no part stands before the suffix"));
  while (!text.empty()) {
    const auto* found = parts.begin();
    while (found != parts.end() && !text.starts_with(found->first)) ++found;
    if (found == parts.end()) return fail(bad_name(name, fmt::format("'{}' is not a part", text.substr(0, 20))));
    text.remove_prefix(found->first.size());
    const std::optional<int64_t> number = take_number(text);
    if (!number || *number < 1 || *number > kMostRanks)
      return fail(bad_name(name, fmt::format("{} needs a number from 1 to {}", found->first, kMostRanks)));
    if (found->second->has_value()) return fail(bad_name(name, fmt::format("{} stands twice", found->first)));
    *found->second = number;
  }
  return sizes;
}

Result<ParallelLayout> combine(std::string_view name, const Sizes& sizes) {
  ParallelLayout layout{.num_stages = sizes.pp.value_or(1)};
  if (sizes.tep) {
    if (sizes.tp || sizes.ep || sizes.dp)
      return fail(bad_name(name, "tep<N> stands for tp and ep together and takes no tp, ep or dp beside it"));
    layout.attention_tp = layout.expert_parallel = layout.dense_tp = *sizes.tep;
    return layout;
  }
  const int64_t ep = sizes.ep.value_or(1);
  layout.attention_tp = layout.dense_tp = sizes.tp.value_or(1);
  layout.attention_dp = sizes.dp.value_or(ep);
  layout.expert_parallel = ep;
  if (layout.stage_size() % ep != 0) {
    return fail(bad_name(name, fmt::format("ep {} does not divide the {} ranks of a stage (dp {} x tp {})", ep,
                                           layout.stage_size(), layout.attention_dp, layout.attention_tp)));
  }
  layout.expert_tp = layout.stage_size() / ep;
  layout.exchange = ep > 1 ? ExchangeKind::kDirect : ExchangeKind::kNone;
  return layout;
}

Status apply_suffix(std::string_view name, std::string_view suffix, ParallelLayout& layout) {
  for (const ExchangeKind kind : {ExchangeKind::kNone, ExchangeKind::kDirect, ExchangeKind::kMpi}) {
    if (suffix == name_of(kind)) return layout.exchange = kind, Status{};
  }
  for (const ExchangeMode mode : {ExchangeMode::kAuto, ExchangeMode::kNormal, ExchangeMode::kLowLatency}) {
    if (suffix == name_of(mode)) return layout.mode = mode, Status{};
  }
  if (suffix == "dense1") return layout.dense_tp = 1, Status{};
  if (suffix.starts_with("layers")) {
    GIMBAL_ASSIGN_OR_RETURN(layout.layers_per_stage, parse_layer_partition(suffix.substr(6)));
    return {};
  }
  return fail(bad_name(name, fmt::format("':{}' is not a suffix", suffix.substr(0, 20))));
}

std::string sizes_text(const ParallelLayout& layout) {
  const auto part = [](std::string_view axis, int64_t size) {
    return size > 1 ? fmt::format("{}{}", axis, size) : std::string();
  };
  const bool is_plain_expert = layout.expert_parallel > 1 && layout.attention_dp == layout.expert_parallel &&
                               layout.expert_tp == layout.attention_tp;
  std::string text = part("pp", layout.num_stages);
  if (is_plain_expert) {
    text += part("tp", layout.attention_tp) + part("ep", layout.expert_parallel);
  } else if (layout.expert_parallel == 1) {
    text += part("dp", layout.attention_dp) + part("tp", layout.attention_tp);
  } else if (layout.attention_dp == 1 && layout.expert_tp == 1 && layout.exchange == ExchangeKind::kNone) {
    text += part("tep", layout.expert_parallel);
  } else {
    text += fmt::format("dp{}{}{}", layout.attention_dp, part("tp", layout.attention_tp),
                        part("ep", layout.expert_parallel));
  }
  return text.empty() ? "single" : text;
}

}  // namespace

std::string_view name_of(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::kNone:
      return "none";
    case ExchangeKind::kDirect:
      return "direct";
    case ExchangeKind::kMpi:
      return "mpi";
  }
  return "unknown";
}

std::string_view name_of(ExchangeMode mode) {
  switch (mode) {
    case ExchangeMode::kAuto:
      return "auto";
    case ExchangeMode::kNormal:
      return "normal";
    case ExchangeMode::kLowLatency:
      return "low_latency";
  }
  return "unknown";
}

Result<std::vector<int64_t>> parse_layer_partition(std::string_view text) {
  std::vector<int64_t> layers;
  const std::string whole(text.substr(0, 80));
  const auto refuse = [&] {
    return fail(Error::invalid(
        fmt::format("--pp-layer-partition '{}' is not a list of whole numbers with commas, like 4,4.", whole),
        "--pp-layer-partition"));
  };
  while (true) {
    const std::optional<int64_t> number = take_number(text);
    if (!number || layers.size() >= static_cast<size_t>(kMostRanks)) return refuse();
    layers.push_back(*number);
    if (text.empty()) return layers;
    if (text.front() != ',') return refuse();
    text.remove_prefix(1);
  }
}

Result<ParallelLayout> parse_layout(std::string_view name) {
  if (name.empty()) return fail(bad_name(name, "the name is empty"));
  std::string_view rest = name;
  const std::string_view sizes_part = rest.substr(0, rest.find(':'));
  GIMBAL_ASSIGN_OR_RETURN(const Sizes sizes, read_sizes(name, sizes_part));
  GIMBAL_ASSIGN_OR_RETURN(ParallelLayout layout, combine(name, sizes));
  rest.remove_prefix(sizes_part.size());
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the colon
    const std::string_view suffix = rest.substr(0, rest.find(':'));
    GIMBAL_RETURN_IF_ERROR(apply_suffix(name, suffix, layout));
    rest.remove_prefix(suffix.size());
  }
  return layout;
}

std::string layout_name(const ParallelLayout& layout) {
  std::string name = sizes_text(layout);
  const Result<ParallelLayout> plain = parse_layout(name);
  const ParallelLayout defaults = plain ? *plain : ParallelLayout{};
  if (layout.exchange != defaults.exchange) name += fmt::format(":{}", name_of(layout.exchange));
  if (layout.mode != defaults.mode) name += fmt::format(":{}", name_of(layout.mode));
  if (layout.dense_tp != defaults.dense_tp) name += fmt::format(":dense{}", layout.dense_tp);
  if (!layout.layers_per_stage.empty()) name += fmt::format(":layers{}", fmt::join(layout.layers_per_stage, ","));
  return name;
}

}  // namespace gimbal
