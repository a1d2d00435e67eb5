// TokenTable: byte strings to ranks, for the inner loop of byte-pair merging.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gimbal {

// Immutable after construction; open addressing, one probe sequence per lookup, no allocation.
class TokenTable {
 public:
  static constexpr uint32_t kNone = 0xffffffff;

  // `tokens[rank]` is the byte string of a rank; all distinct and not empty.
  explicit TokenTable(const std::vector<std::string>& tokens);

  // The rank of a byte string, or kNone.
  uint32_t find(std::string_view bytes) const {
    if (bytes.size() == 2)
      return pairs_[static_cast<size_t>(static_cast<uint8_t>(bytes[0])) << 8 | static_cast<uint8_t>(bytes[1])];
    if (bytes.size() > longest_) return kNone;
    const uint64_t hash = hash_of(bytes);
    for (size_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      const Slot& entry = slots_[slot];
      if (entry.rank == kNone) return kNone;
      if (entry.tag == static_cast<uint32_t>(hash >> 32) && entry.size == bytes.size() &&
          std::memcmp(bytes_.data() + entry.offset, bytes.data(), bytes.size()) == 0) {
        return entry.rank;
      }
    }
  }
  size_t longest() const { return longest_; }  // bytes of the longest token

 private:
  struct Slot {
    uint32_t rank = kNone;
    uint32_t tag = 0;  // upper half of the hash
    uint32_t offset = 0;
    uint32_t size = 0;
  };
  static uint64_t hash_of(std::string_view bytes);

  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  std::string bytes_;            // all tokens one after the other
  std::vector<uint32_t> pairs_;  // [65536] ranks of the two-byte tokens: half of all lookups
  size_t longest_ = 0;
};

inline uint64_t TokenTable::hash_of(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = bytes.size() * kMultiplier;
  const char* data = bytes.data();
  size_t left = bytes.size();
  while (left > 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
    data += 8;
    left -= 8;
  }
  uint64_t word = 0;
  std::memcpy(&word, data, left);
  hash = (hash ^ word) * kMultiplier;
  hash ^= hash >> 32;
  return hash * kMultiplier ^ hash;
}

}  // namespace gimbal
