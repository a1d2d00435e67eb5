// PrefixIndex: finds the KV pages of a prompt's beginning that are in the pool already.
//
// A tree with one node per full page of tokens, one root per cache salt. The index is one user of every page it holds;
// sequences that work with a page are further ones. Pages that only the index uses are given up when others need the
// room, the longest unused first, leaves before their parents.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_cache/page_pool.h"

namespace gimbal {

// Not thread-safe: owned by the one scheduler. The pool must outlive it.
class PrefixIndex {
 public:
  explicit PrefixIndex(PagePool& pool) : pool_(pool) {}

  // Pages of the longest indexed beginning of `tokens`, whole pages only. The caller becomes a user of each and gives
  // them back by release().
  std::vector<PageId> take_match(const std::string& salt, std::span<const int32_t> tokens);
  // How many that would be, and how many of them nobody uses now.
  struct MatchSize {
    int64_t num_pages = 0;
    int64_t num_unused = 0;
  };
  MatchSize match_size(const std::string& salt, std::span<const int32_t> tokens) const;

  // Indexes the full pages of `tokens`; the caller computes or has computed them in `pages` and uses them. Where the
  // same tokens are indexed already, the caller's page is given back and replaced by the indexed one.
  void insert(const std::string& salt, std::span<const int32_t> tokens, std::span<PageId> pages);

  // The caller uses these pages no more, indexed or not.
  void release(std::span<const PageId> pages);

  // Gives `count` unused pages back to the pool, or all there are; returns how many (more where a whole branch had to
  // go). Pages that are used stay with their users.
  int64_t evict(int64_t count);
  int64_t num_pages() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t num_unused() const { return num_unused_; }  // pages that only the index uses

  // Counts every page again: what is unused, which of it has no children, that parents are there.
  bool is_consistent() const;

 private:
  struct Node {
    Node* parent = nullptr;  // nullptr: of a root
    std::string salt;        // of a root's child
    std::vector<int32_t> tokens;
    PageId page = -1;
    uint64_t last_use = 0;
    std::map<std::vector<int32_t>, std::unique_ptr<Node>> children;
  };
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>>;

  bool is_unused(const Node& node) const { return pool_.num_users(node.page) == 1; }
  void mark_used(Node& node);
  void mark_unused(Node& node);
  void remove(Node& node);
  void remove_tree(Node& top);
  Children* find_root(const std::string& salt);
  std::vector<int32_t> block(std::span<const int32_t> tokens, int64_t index) const;

  PagePool& pool_;
  std::map<std::string, Children> roots_;         // by salt
  std::unordered_map<PageId, Node*> nodes_;       // by page
  std::set<std::pair<uint64_t, PageId>> leaves_;  // unused nodes without children, longest unused first
  int64_t num_unused_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace gimbal
