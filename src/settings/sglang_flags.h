// Flags of SGLang's server that are no settings of this build: accepted without effect, or refused with a reason.
//
// A unit file written for SGLang works when what it asks for is what this build does anyway; what would change the
// answers is refused.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace gimbal {

struct SglangFlag {
  enum class Kind {
    kNoEffect,    // accepted with one printed line
    kOnlyValues,  // accepted with one of `values`, else refused
    kRefused,     // refused with `reason`
  };
  std::string_view flag;
  bool takes_value = true;
  Kind kind = Kind::kNoEffect;
  std::string_view reason;                    // why it has no effect, or what is in the way and what to do
  std::vector<std::string_view> values = {};  // kOnlyValues
};

std::span<const SglangFlag> sglang_flags();

// Flags that were renamed or never existed under that name: what is meant instead.
struct RenamedFlag {
  std::string_view flag;
  std::string_view hint;
};
std::span<const RenamedFlag> renamed_flags();

}  // namespace gimbal
