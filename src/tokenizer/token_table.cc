#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>

namespace gimbal {

TokenTable::TokenTable(const std::vector<std::string>& tokens) {
  slots_.resize(std::bit_ceil(tokens.size() * 2 + 2));
  mask_ = slots_.size() - 1;
  pairs_.assign(65536, kNone);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string& token = tokens[rank];
    const uint64_t hash = hash_of(token);
    size_t slot = hash & mask_;
    while (slots_[slot].rank != kNone) slot = (slot + 1) & mask_;
    slots_[slot] = {.rank = static_cast<uint32_t>(rank),
                    .tag = static_cast<uint32_t>(hash >> 32),
                    .offset = static_cast<uint32_t>(bytes_.size()),
                    .size = static_cast<uint32_t>(token.size())};
    bytes_ += token;
    longest_ = std::max(longest_, token.size());
    if (token.size() == 2) {
      pairs_[static_cast<size_t>(static_cast<uint8_t>(token[0])) << 8 | static_cast<uint8_t>(token[1])] =
          static_cast<uint32_t>(rank);
    }
  }
}

}  // namespace gimbal
