// Checks for programmer's errors: they print the values and end the process. Never for input from outside.
#pragma once

#include <string_view>

#include <fmt/format.h>

namespace gimbal {

// Prints "check failed: CONDITION (DETAIL) at FILE:LINE" to stderr and aborts.
[[noreturn]] void check_failed(std::string_view condition, std::string_view detail, const char* file, int line);

}  // namespace gimbal

#define GIMBAL_CHECK(condition)                                                   \
  do {                                                                            \
    if (!(condition)) ::gimbal::check_failed(#condition, "", __FILE__, __LINE__); \
  } while (false)

#define GIMBAL_CHECK_OP(a, op, b)                                                                             \
  do {                                                                                                        \
    const auto& gimbal_a_ = (a);                                                                              \
    const auto& gimbal_b_ = (b);                                                                              \
    if (!(gimbal_a_ op gimbal_b_)) {                                                                          \
      ::gimbal::check_failed(#a " " #op " " #b, fmt::format("{} against {}", gimbal_a_, gimbal_b_), __FILE__, \
                             __LINE__);                                                                       \
    }                                                                                                         \
  } while (false)

#define GIMBAL_CHECK_EQ(a, b) GIMBAL_CHECK_OP(a, ==, b)
#define GIMBAL_CHECK_LT(a, b) GIMBAL_CHECK_OP(a, <, b)
#define GIMBAL_CHECK_LE(a, b) GIMBAL_CHECK_OP(a, <=, b)
#define GIMBAL_CHECK_GE(a, b) GIMBAL_CHECK_OP(a, >=, b)
