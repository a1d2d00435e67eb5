// Suggestions for misspelled names: edit distance and the nearest of a list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gimbal {

// Number of single-character insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment distance).
size_t edit_distance(std::string_view a, std::string_view b);

// Up to `limit` candidates that plausibly were meant by `name`, nearest first; a candidate qualifies when its distance
// is at most a third of the longer name (at least 2) or when one of the two starts with the other. Empty when nothing
// is near.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                       size_t limit = 3);

}  // namespace gimbal
