// The tokenizer's files: tiktoken.model (base64 token and rank per line) and tokenizer_config.json (names of the
// special slots).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gimbal {

// 256 special slots follow the base vocabulary.
inline constexpr int64_t kNumSpecialSlots = 256;

struct SpecialToken {
  std::string text;        // `<|reserved_token_ID|>` for a slot without a name
  bool is_skipped = true;  // its `special` flag: dropped when decoding with special tokens skipped
};

// Base tokens by rank. CRLF line ends and blank lines are read; everything else that is not "base64 rank" is refused
// with file and line: bad base64, a rank that is missing, out of place or twice, a token twice, a single byte without a
// token, a Git LFS pointer.
Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text, std::string_view path);

// The 256 slots by (id - num_base_tokens), from the keys of `added_tokens_decoder`; their order and completeness do not
// matter. Empty text stands for a missing file: all slots are reserved ones.
Result<std::vector<SpecialToken>> parse_special_tokens(std::string_view config_text, int64_t num_base_tokens,
                                                       std::string_view path);

}  // namespace gimbal
