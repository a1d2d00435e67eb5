// byte_pair_encoder: merges the bytes of one pre-token to ranks, lowest rank first, leftmost among equals.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/token_table.h"

namespace gimbal {

// Scratch memory of one caller, kept between pieces.
struct MergeScratch {
  struct Part {
    uint32_t begin = 0;
    uint32_t rank = TokenTable::kNone;  // of this part joined with the next
  };
  std::vector<Part> parts;
};

// Appends the ranks of `piece` (not empty; every single byte is a token). A piece that is a token itself is one rank.
// Short pieces are scanned for the lowest pair; long ones use a heap, so that the time is n log n for any input.
void encode_piece(const TokenTable& table, std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ranks);

// The definition: look at all pairs, merge the lowest, again. For comparison.
void encode_piece_reference(const TokenTable& table, std::string_view piece, std::vector<int32_t>& ranks);

}  // namespace gimbal
