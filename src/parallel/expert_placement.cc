#include "parallel/expert_placement.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/file_text.h"
#include "base/json_reading.h"
#include "parallel/expert_balancer.h"

namespace gimbal {
namespace {

constexpr const char* kMapKey = "physical_to_logical_map";
constexpr const char* kCountKey = "logical_count";
constexpr int kDoubleDigits = std::numeric_limits<double>::digits;

using CountRows = std::vector<std::vector<double>>;  // [num_layers][num_experts]

void check_shape(const ExpertPlacementShape& shape) {
  GIMBAL_CHECK_GE(shape.num_layers, 0);
  GIMBAL_CHECK_GE(shape.num_experts, 1);
  GIMBAL_CHECK_GE(shape.num_redundant, 0);
  GIMBAL_CHECK_GE(shape.num_ranks, 1);
  GIMBAL_CHECK_LE(shape.num_slots(), std::numeric_limits<int32_t>::max());
  GIMBAL_CHECK_EQ(shape.num_slots() % shape.num_ranks, 0);
}

Status check_row(const ExpertPlacementShape& shape, int64_t layer, std::span<const int32_t> slots) {
  if (static_cast<int64_t>(slots.size()) != shape.num_slots()) {
    return fail(
        Error::invalid(fmt::format("layer {} must have {} slots ({} experts and {} redundant), found {}.", layer,
                                   shape.num_slots(), shape.num_experts, shape.num_redundant, slots.size())));
  }
  std::vector<bool> has_slot(static_cast<size_t>(shape.num_experts), false);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] < 0 || slots[slot] >= shape.num_experts) {
      return fail(Error::invalid(fmt::format("layer {}, slot {} must hold an expert from 0 to {}, found {}.", layer,
                                             slot, shape.num_experts - 1, slots[slot])));
    }
    has_slot[static_cast<size_t>(slots[slot])] = true;
  }
  const auto absent = std::find(has_slot.begin(), has_slot.end(), false);
  if (absent == has_slot.end()) return {};
  return fail(
      Error::invalid(fmt::format("layer {} must hold each of the {} experts at least once, found no slot with "
                                 "expert {}.",
                                 layer, shape.num_experts, absent - has_slot.begin())));
}

// What an error says was found. Strings stay out: they may be long and hold anything.
std::string describe(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::array:
      return fmt::format("an array of {}", value.get_array().size());
    case boost::json::kind::object:
      return "an object";
    case boost::json::kind::string:
      return "a string";
    default:
      return boost::json::serialize(value);
  }
}

Error must_be(std::string_view where, std::string_view required, const boost::json::value& found) {
  return Error::invalid(fmt::format("{} must be {}, found {}.", where, required, describe(found)));
}

// One element of a table: how it is read, and what an error says is required.
template <typename T>
struct ElementRule {
  std::optional<T> (*read)(const boost::json::value& value);
  std::string required;
};

struct TableSize {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  const char* column_name = "";
};

// `where` names the table in errors: file, key and, of a larger table, index.
template <typename T>
Result<std::vector<std::vector<T>>> read_table(const boost::json::value& value, const TableSize& size,
                                               const std::string& where, const ElementRule<T>& rule) {
  const boost::json::array* rows = value.if_array();
  if (rows == nullptr || static_cast<int64_t>(rows->size()) != size.num_rows) {
    return fail(must_be(where, fmt::format("an array of {} layers", size.num_rows), value));
  }
  std::vector<std::vector<T>> table;
  for (size_t layer = 0; layer < rows->size(); ++layer) {
    const boost::json::array* row = (*rows)[layer].if_array();
    if (row == nullptr || static_cast<int64_t>(row->size()) != size.num_columns) {
      return fail(must_be(fmt::format("{}[{}]", where, layer),
                          fmt::format("an array of {} {}", size.num_columns, size.column_name), (*rows)[layer]));
    }
    std::vector<T>& elements = table.emplace_back();
    for (size_t column = 0; column < row->size(); ++column) {
      const std::optional<T> element = rule.read((*row)[column]);
      if (!element)
        return fail(must_be(fmt::format("{}[{}][{}]", where, layer, column), rule.required, (*row)[column]));
      elements.push_back(*element);
    }
  }
  return table;
}

std::optional<int32_t> read_expert(const boost::json::value& value) {
  const int64_t* number = value.if_int64();
  if (number == nullptr || *number < 0 || *number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*number);
}

std::optional<double> read_count(const boost::json::value& value) {
  if (!value.is_number()) return std::nullopt;
  const auto count = value.to_number<double>();
  if (!std::isfinite(count) || count < 0.0) return std::nullopt;
  return count;
}

bool has_samples(const boost::json::value& counts) {
  const boost::json::value* value = &counts;
  for (int depth = 0; depth < 2; ++depth) {
    const boost::json::array* array = value->if_array();
    if (array == nullptr || array->empty()) return false;
    value = &array->front();
  }
  return value->is_array();
}

Result<CountRows> read_counts(const boost::json::value& value, const ExpertPlacementShape& shape,
                              const std::string& where) {
  const TableSize size{.num_rows = shape.num_layers, .num_columns = shape.num_experts, .column_name = "experts"};
  const ElementRule<double> rule{.read = read_count, .required = "a finite number >= 0"};
  if (!has_samples(value)) return read_table(value, size, where, rule);
  CountRows sums(static_cast<size_t>(shape.num_layers),
                 std::vector<double>(static_cast<size_t>(shape.num_experts), 0.0));
  const boost::json::array& samples = value.get_array();
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    GIMBAL_ASSIGN_OR_RETURN(const CountRows counts,
                            read_table(samples[sample], size, fmt::format("{}[{}]", where, sample), rule));
    for (size_t layer = 0; layer < sums.size(); ++layer) {
      for (size_t expert = 0; expert < sums[layer].size(); ++expert) sums[layer][expert] += counts[layer][expert];
    }
  }
  for (size_t layer = 0; layer < sums.size(); ++layer) {
    const auto at =
        std::find_if(sums[layer].begin(), sums[layer].end(), [](double sum) { return !std::isfinite(sum); });
    if (at == sums[layer].end()) continue;
    return fail(
        Error::invalid(fmt::format("{} must have finite sums over its {} samples, found an overflow for layer "
                                   "{}, expert {}.",
                                   where, samples.size(), layer, at - sums[layer].begin())));
  }
  return sums;
}

// Counts as the balancer takes them. The scale is a power of two, so that only the last rounding loses anything.
std::vector<uint64_t> integer_counts(std::span<const double> counts) {
  const double most = *std::max_element(counts.begin(), counts.end());
  const bool is_exact = most < std::ldexp(1.0, kDoubleDigits) &&
                        std::all_of(counts.begin(), counts.end(), [](double x) { return x == std::floor(x); });
  const int shift = is_exact ? 0 : kDoubleDigits - 1 - std::ilogb(most);
  std::vector<uint64_t> integers;
  for (const double count : counts) integers.push_back(static_cast<uint64_t>(std::llround(std::ldexp(count, shift))));
  return integers;
}

}  // namespace

ExpertPlacement::ExpertPlacement(const ExpertPlacementShape& shape, std::vector<std::vector<int32_t>> slot_experts)
    : shape_(shape), slot_experts_(std::move(slot_experts)) {
  for (const std::vector<int32_t>& experts : slot_experts_) {
    std::vector<int32_t> slots(experts.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::stable_sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) {
      return experts[static_cast<size_t>(a)] < experts[static_cast<size_t>(b)];
    });
    copies_.insert(copies_.end(), slots.begin(), slots.end());
    std::vector<int32_t> begin(static_cast<size_t>(shape.num_experts) + 1, 0);
    for (const int32_t expert : experts) ++begin[static_cast<size_t>(expert) + 1];
    std::partial_sum(begin.begin(), begin.end(), std::back_inserter(copies_begin_));
  }
}

ExpertPlacement ExpertPlacement::trivial(const ExpertPlacementShape& shape) {
  check_shape(shape);
  std::vector<int32_t> experts(static_cast<size_t>(shape.num_slots()));
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    experts[slot] = static_cast<int32_t>(static_cast<int64_t>(slot) % shape.num_experts);
  }
  return {shape, std::vector<std::vector<int32_t>>(static_cast<size_t>(shape.num_layers), experts)};
}

Result<ExpertPlacement> ExpertPlacement::from_slots(const ExpertPlacementShape& shape,
                                                    std::vector<std::vector<int32_t>> slot_experts) {
  check_shape(shape);
  if (static_cast<int64_t>(slot_experts.size()) != shape.num_layers) {
    return fail(Error::invalid(
        fmt::format("the expert placement must have {} layers, found {}.", shape.num_layers, slot_experts.size())));
  }
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    GIMBAL_RETURN_IF_ERROR(check_row(shape, layer, slot_experts[static_cast<size_t>(layer)]));
  }
  return ExpertPlacement(shape, std::move(slot_experts));
}

std::span<const int32_t> ExpertPlacement::experts_of(int64_t layer, int64_t rank) const {
  GIMBAL_CHECK(layer >= 0 && layer < shape_.num_layers);
  GIMBAL_CHECK(rank >= 0 && rank < shape_.num_ranks);
  const int64_t count = shape_.slots_per_rank();
  return std::span(slot_experts_[static_cast<size_t>(layer)])
      .subspan(static_cast<size_t>(rank * count), static_cast<size_t>(count));
}

std::span<const int32_t> ExpertPlacement::copies_of(int64_t layer, int64_t expert) const {
  GIMBAL_CHECK(layer >= 0 && layer < shape_.num_layers);
  GIMBAL_CHECK(expert >= 0 && expert < shape_.num_experts);
  const auto at = static_cast<size_t>(layer * (shape_.num_experts + 1) + expert);
  const auto begin = static_cast<size_t>(copies_begin_[at]);
  const auto end = static_cast<size_t>(copies_begin_[at + 1]);
  return std::span(copies_).subspan(static_cast<size_t>(layer * shape_.num_slots()) + begin, end - begin);
}

Result<ExpertPlacement> read_expert_placement(const std::filesystem::path& file, const ExpertPlacementShape& shape) {
  check_shape(shape);
  const std::string name = file.string();
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(file));
  GIMBAL_ASSIGN_OR_RETURN(const boost::json::value document, parse_json(text, name));
  const std::string required = fmt::format("a JSON object with exactly one of {} and {}", kMapKey, kCountKey);
  const boost::json::object* root = document.if_object();
  if (root == nullptr) return fail(must_be(name, required, document));
  const boost::json::value* map = root->if_contains(kMapKey);
  const boost::json::value* counts = root->if_contains(kCountKey);
  if ((map == nullptr) == (counts == nullptr)) {
    return fail(
        Error::invalid(fmt::format("{} must be {}, found {}.", name, required, map == nullptr ? "neither" : "both")));
  }
  const std::string where = fmt::format("{}: {}", name, map == nullptr ? kCountKey : kMapKey);
  if (map == nullptr) {
    GIMBAL_ASSIGN_OR_RETURN(const CountRows rows, read_counts(*counts, shape, where));
    std::vector<std::vector<uint64_t>> logical_count;
    for (const std::vector<double>& row : rows) logical_count.push_back(integer_counts(row));
    return balance_experts(shape, logical_count);
  }
  const TableSize size{.num_rows = shape.num_layers, .num_columns = shape.num_slots(), .column_name = "slots"};
  const ElementRule<int32_t> rule{.read = read_expert,
                                  .required = fmt::format("an expert from 0 to {}", shape.num_experts - 1)};
  GIMBAL_ASSIGN_OR_RETURN(auto slots, read_table(*map, size, where, rule));
  Result<ExpertPlacement> placement = ExpertPlacement::from_slots(shape, std::move(slots));
  if (!placement) return fail(Error::invalid(fmt::format("{}: {}", where, placement.error().message)));
  return placement;
}

std::string placement_json(const ExpertPlacement& placement) {
  const ExpertPlacementShape& shape = placement.shape();
  std::vector<std::string> layers;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    std::vector<int32_t> slots;
    for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
      const std::span<const int32_t> experts = placement.experts_of(layer, rank);
      slots.insert(slots.end(), experts.begin(), experts.end());
    }
    layers.push_back(fmt::format("[{}]", fmt::join(slots, ",")));
  }
  return fmt::format("{{\"{}\": [\n{}\n]}}\n", kMapKey, fmt::join(layers, ",\n"));
}

std::string expert_load_json(const std::vector<std::vector<uint64_t>>& logical_count) {
  std::vector<std::string> layers;
  for (const std::vector<uint64_t>& counts : logical_count) {
    layers.push_back(fmt::format("[{}]", fmt::join(counts, ",")));
  }
  return fmt::format("{{\"{}\": [\n{}\n]}}\n", kCountKey, fmt::join(layers, ",\n"));
}

}  // namespace gimbal
