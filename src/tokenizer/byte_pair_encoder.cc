#include "tokenizer/byte_pair_encoder.h"

#include <queue>
#include <string>

namespace gimbal {
namespace {

constexpr size_t kLongPiece = 128;

using Part = MergeScratch::Part;

// Rank of the bytes from part `i` up to the end of part `i + 1`, in a list that ends with a part at the end of the
// piece.
uint32_t joined_rank(const TokenTable& table, std::string_view piece, const std::vector<Part>& parts, size_t i) {
  if (i + 2 >= parts.size()) return TokenTable::kNone;
  return table.find(piece.substr(parts[i].begin, parts[i + 2].begin - parts[i].begin));
}

void encode_short_piece(const TokenTable& table, std::string_view piece, std::vector<Part>& parts,
                        std::vector<int32_t>& ranks) {
  parts.clear();
  for (uint32_t begin = 0; begin <= piece.size(); ++begin) parts.push_back({begin, TokenTable::kNone});
  for (size_t i = 0; i + 2 < parts.size(); ++i) parts[i].rank = joined_rank(table, piece, parts, i);
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i + 2 < parts.size(); ++i) {
      if (parts[i].rank < parts[best].rank) best = i;
    }
    if (parts[best].rank == TokenTable::kNone) break;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    parts[best].rank = joined_rank(table, piece, parts, best);
    if (best > 0) parts[best - 1].rank = joined_rank(table, piece, parts, best - 1);
  }
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    ranks.push_back(
        static_cast<int32_t>(table.find(piece.substr(parts[i].begin, parts[i + 1].begin - parts[i].begin))));
  }
}

// Parts as a doubly linked list over byte positions, pairs in a heap; entries that a merge made stale are skipped.
class LongPiece {
 public:
  LongPiece(const TokenTable& table, std::string_view piece) : table_(table), piece_(piece), nodes_(piece.size()) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i] = {.end = i + 1, .previous = i == 0 ? kNoNode : i - 1, .is_alive = true};
    }
    for (uint32_t i = 0; i + 1 < nodes_.size(); ++i) push(i);
  }

  void merge_all(std::vector<int32_t>& ranks) {
    while (!heap_.empty()) {
      const Pair pair = heap_.top();
      heap_.pop();
      const Node& left = nodes_[pair.begin];
      const bool is_current = left.is_alive && left.end < piece_.size() && nodes_[left.end].end == pair.end;
      if (is_current) merge(pair);
    }
    for (uint32_t begin = 0; begin < piece_.size(); begin = nodes_[begin].end) {
      ranks.push_back(static_cast<int32_t>(table_.find(piece_.substr(begin, nodes_[begin].end - begin))));
    }
  }

 private:
  static constexpr uint32_t kNoNode = 0xffffffff;
  struct Node {  // a part, named by the position of its first byte
    uint32_t end = 0;
    uint32_t previous = kNoNode;
    bool is_alive = false;
  };
  struct Pair {
    uint32_t rank, begin, end;
    bool operator<(const Pair& other) const { return rank > other.rank || (rank == other.rank && begin > other.begin); }
  };

  // Puts the pair of the part at `begin` and the next one into the heap, when it is a token.
  void push(uint32_t begin) {
    const uint32_t middle = nodes_[begin].end;
    if (middle >= piece_.size()) return;
    const uint32_t end = nodes_[middle].end;
    const uint32_t rank = table_.find(piece_.substr(begin, end - begin));
    if (rank != TokenTable::kNone) heap_.push({rank, begin, end});
  }

  void merge(const Pair& pair) {
    Node& left = nodes_[pair.begin];
    nodes_[left.end].is_alive = false;
    left.end = pair.end;
    if (pair.end < piece_.size()) nodes_[pair.end].previous = pair.begin;
    push(pair.begin);
    if (left.previous != kNoNode) push(left.previous);
  }

  const TokenTable& table_;
  std::string_view piece_;
  std::vector<Node> nodes_;
  std::priority_queue<Pair> heap_;
};

}  // namespace

void encode_piece(const TokenTable& table, std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ranks) {
  if (const uint32_t rank = table.find(piece); rank != TokenTable::kNone) {
    ranks.push_back(static_cast<int32_t>(rank));
    return;
  }
  if (piece.size() < kLongPiece) return encode_short_piece(table, piece, scratch.parts, ranks);
  LongPiece(table, piece).merge_all(ranks);
}

void encode_piece_reference(const TokenTable& table, std::string_view piece, std::vector<int32_t>& ranks) {
  std::vector<std::string> parts;
  if (table.find(piece) != TokenTable::kNone) {
    parts.emplace_back(piece);
  } else {
    for (const char byte : piece) parts.emplace_back(1, byte);
  }
  while (true) {
    uint32_t lowest = TokenTable::kNone;
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const uint32_t rank = table.find(parts[i] + parts[i + 1]);
      if (rank < lowest) {
        lowest = rank;
        best = i;
      }
    }
    if (lowest == TokenTable::kNone) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  for (const std::string& part : parts) ranks.push_back(static_cast<int32_t>(table.find(part)));
}

}  // namespace gimbal
