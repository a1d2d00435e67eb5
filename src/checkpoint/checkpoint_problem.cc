#include "checkpoint/checkpoint_problem.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

namespace gimbal {
namespace {

constexpr size_t kMaxLines = 22;
constexpr size_t kMaxRanges = 6;
constexpr char kNumber = '\x01';  // stands for a number; no tensor name holds it by intention

struct NameGroup {
  std::vector<std::set<uint64_t>> numbers;  // values of each number
  uint64_t count = 0;
};

bool is_number(std::string_view part) {
  return !part.empty() && part.size() <= 9 &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Cuts a name at dots; numbers go to `numbers` and leave kNumber in the pattern.
std::string pattern_of(std::string_view name, std::vector<uint64_t>& numbers) {
  std::string pattern;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    if (is_number(part)) {
      numbers.push_back(std::stoull(std::string(part)));
      pattern += kNumber;
    } else {
      pattern += part;
    }
    if (dot == std::string_view::npos) return pattern;
    pattern += '.';
    name.remove_prefix(dot + 1);
  }
}

std::string format_ranges(const std::set<uint64_t>& values) {
  if (values.size() == 1) return std::to_string(*values.begin());
  std::string text = "{";
  size_t num_ranges = 0;
  for (auto it = values.begin(); it != values.end();) {
    const uint64_t first = *it;
    uint64_t last = first;
    for (++it; it != values.end() && *it == last + 1; ++it) last = *it;
    if (num_ranges == kMaxRanges) return text + ",...}";
    if (num_ranges++ > 0) text += ',';
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text + "}";
}

std::string format_group(const std::string& pattern, const NameGroup& group) {
  std::string text;
  size_t slot = 0;
  uint64_t product = 1;
  for (const char c : pattern) {
    if (c == kNumber && slot < group.numbers.size()) {
      product *= group.numbers[slot].size();
      text += format_ranges(group.numbers[slot++]);
    } else {
      text += c;
    }
  }
  if (group.count == 1) return text;
  if (group.count < product) return fmt::format("{} ({} tensors, not every combination)", text, group.count);
  return fmt::format("{} ({} tensors)", text, group.count);
}

}  // namespace

std::vector<std::string> collapse_names(std::span<const std::string> names, size_t max_lines) {
  std::vector<std::string> order;
  std::unordered_map<std::string, NameGroup> groups;
  for (const std::string& name : names) {
    std::vector<uint64_t> numbers;
    const std::string pattern = pattern_of(name, numbers);
    auto [it, is_new] = groups.try_emplace(pattern);
    if (is_new) {
      order.push_back(pattern);
      it->second.numbers.resize(numbers.size());
    }
    ++it->second.count;
    const size_t num_slots = std::min(numbers.size(), it->second.numbers.size());  // a name may hold kNumber itself
    for (size_t i = 0; i < num_slots; ++i) it->second.numbers[i].insert(numbers[i]);
  }
  std::vector<std::string> lines;
  uint64_t num_left = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const NameGroup& group = groups[order[i]];
    if (i < max_lines) {
      lines.push_back(format_group(order[i], group));
    } else {
      num_left += group.count;
    }
  }
  if (num_left > 0)
    lines.push_back(fmt::format("and {} tensors of {} other kinds", num_left, order.size() - max_lines));
  return lines;
}

Error describe_problems(std::string_view model_dir, std::span<const CheckpointProblem> problems) {
  std::string text = fmt::format("The checkpoint in {} cannot be used; nothing was loaded.", model_dir);
  size_t num_lines = 1;
  for (size_t i = 0; i < problems.size(); ++i) {
    const std::string& message = problems[i].message;
    const size_t lines = 1 + static_cast<size_t>(std::count(message.begin(), message.end(), '\n'));
    if (i > 0 && num_lines + lines > kMaxLines) {
      text += fmt::format("\n- and {} more problems; `gimbal check --model-path {}` lists all.", problems.size() - i,
                          model_dir);
      break;
    }
    num_lines += lines;
    text += "\n- " + message;
  }
  return Error::invalid(std::move(text), "--model-path");
}

}  // namespace gimbal
