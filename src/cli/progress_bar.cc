#include "cli/progress_bar.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "base/byte_size.h"

namespace gimbal {
namespace {

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string title, int64_t total, std::string unit)
    : title_(std::move(title)),
      total_(std::max<int64_t>(total, 1)),
      unit_(std::move(unit)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_print_(start_) {}

std::string ProgressBar::describe(double elapsed_s) const {
  const double fraction = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const double rate = elapsed_s > 0 ? static_cast<double>(done_) / elapsed_s : 0.0;
  const std::string left = fraction > 0 ? format_duration(elapsed_s * (1 - fraction) / fraction) : "unknown time";
  if (unit_ == "bytes") {
    return fmt::format("{} {:3.0f} % ({} of {}, {}/s, {} left)", title_, fraction * 100,
                       format_bytes(static_cast<uint64_t>(done_)), format_bytes(static_cast<uint64_t>(total_)),
                       format_bytes(static_cast<uint64_t>(rate)), left);
  }
  return fmt::format("{} {:3.0f} % ({} of {} {}, {:.1f}/s, {} left)", title_, fraction * 100, done_, total_, unit_,
                     rate, left);
}

void ProgressBar::advance(int64_t count) {
  done_ += count;
  const auto now = std::chrono::steady_clock::now();
  const auto interval = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  const auto pause = has_printed_ ? interval : std::chrono::milliseconds(1000);
  if (now - last_print_ < pause) return;
  const std::string text = describe(std::chrono::duration<double>(now - start_).count());
  if (is_terminal_) {
    const auto filled = static_cast<size_t>(20 * std::min(done_, total_) / total_);
    fmt::print(stderr, "\r\x1b[K[{}{}] {}", std::string(filled, '#'), std::string(20 - filled, '.'), text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
  has_printed_ = true;
  last_print_ = now;
}

void ProgressBar::finish() {
  if (!has_printed_) return;
  if (is_terminal_) {
    fmt::print(stderr, "\r\x1b[K");
  } else {
    fmt::print(stderr, "{}\n",
               describe(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()));
  }
  std::fflush(stderr);
}

}  // namespace gimbal
