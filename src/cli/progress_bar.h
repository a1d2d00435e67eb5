// ProgressBar: how far long work is, with rate and time left. A bar on a terminal, a line every few seconds otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gimbal {

// Writes to stderr. Nothing is printed for work that ends within a second. One thread.
class ProgressBar {
 public:
  // `unit` names what is counted ("sequences"); "bytes" is shown as sizes.
  ProgressBar(std::string title, int64_t total, std::string unit);

  void advance(int64_t count);
  // Removes the bar from a terminal; prints the last line otherwise, when lines were printed before.
  void finish();

 private:
  std::string describe(double elapsed_s) const;

  std::string title_;
  int64_t total_;
  std::string unit_;
  int64_t done_ = 0;
  bool is_terminal_;
  bool has_printed_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_print_;
};

}  // namespace gimbal
