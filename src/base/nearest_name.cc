#include "base/nearest_name.h"

#include <algorithm>
#include <utility>

namespace gimbal {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_back(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], two_back[j - 2] + 1);
    }
    std::swap(two_back, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates, size_t limit) {
  std::vector<std::pair<size_t, const std::string*>> near;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    const size_t allowed = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    const bool is_prefix = name.size() >= 3 && (candidate.starts_with(name) || name.starts_with(candidate));
    if (distance <= allowed || is_prefix) near.emplace_back(distance, &candidate);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(limit, near.size()); ++i) names.push_back(*near[i].second);
  return names;
}

}  // namespace gimbal
