#include "kv_cache/prefix_index.h"

#include "base/check.h"

namespace gimbal {

std::vector<int32_t> PrefixIndex::block(std::span<const int32_t> tokens, int64_t index) const {
  const auto part =
      tokens.subspan(static_cast<size_t>(index * pool_.page_size()), static_cast<size_t>(pool_.page_size()));
  return {part.begin(), part.end()};
}

PrefixIndex::Children* PrefixIndex::find_root(const std::string& salt) {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? nullptr : &found->second;
}

void PrefixIndex::mark_used(Node& node) {
  if (is_unused(node)) {
    --num_unused_;
    leaves_.erase({node.last_use, node.page});
  }
  pool_.share(node.page);
}

void PrefixIndex::mark_unused(Node& node) {
  node.last_use = ++clock_;
  ++num_unused_;
  if (node.children.empty()) leaves_.insert({node.last_use, node.page});
}

std::vector<PageId> PrefixIndex::take_match(const std::string& salt, std::span<const int32_t> tokens) {
  std::vector<PageId> pages;
  Children* children = find_root(salt);
  const int64_t num_blocks = static_cast<int64_t>(tokens.size()) / pool_.page_size();
  for (int64_t index = 0; children != nullptr && index < num_blocks; ++index) {
    const auto found = children->find(block(tokens, index));
    if (found == children->end()) break;
    mark_used(*found->second);
    pages.push_back(found->second->page);
    children = &found->second->children;
  }
  return pages;
}

PrefixIndex::MatchSize PrefixIndex::match_size(const std::string& salt, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(salt);
  const Children* children = root == roots_.end() ? nullptr : &root->second;
  const int64_t num_blocks = static_cast<int64_t>(tokens.size()) / pool_.page_size();
  MatchSize size;
  while (children != nullptr && size.num_pages < num_blocks) {
    const auto found = children->find(block(tokens, size.num_pages));
    if (found == children->end()) break;
    ++size.num_pages;
    size.num_unused += is_unused(*found->second) ? 1 : 0;
    children = &found->second->children;
  }
  return size;
}

void PrefixIndex::insert(const std::string& salt, std::span<const int32_t> tokens, std::span<PageId> pages) {
  const int64_t num_blocks = static_cast<int64_t>(tokens.size()) / pool_.page_size();
  GIMBAL_CHECK_LE(num_blocks, static_cast<int64_t>(pages.size()));
  if (num_blocks == 0) return;
  Children* children = &roots_[salt];
  Node* parent = nullptr;
  for (int64_t index = 0; index < num_blocks; ++index) {
    std::vector<int32_t> key = block(tokens, index);
    PageId& page = pages[static_cast<size_t>(index)];
    auto found = children->find(key);
    if (found == children->end()) {
      auto node = std::make_unique<Node>();
      *node = {.parent = parent, .salt = salt, .tokens = key, .page = page, .last_use = 0, .children = {}};
      if (parent != nullptr) leaves_.erase({parent->last_use, parent->page});
      nodes_[page] = node.get();
      pool_.share(page);
      found = children->emplace(std::move(key), std::move(node)).first;
    } else if (found->second->page != page) {
      mark_used(*found->second);
      pool_.give_back(page);
      page = found->second->page;
    }
    parent = found->second.get();
    children = &parent->children;
  }
}

void PrefixIndex::release(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    pool_.give_back(page);
    const auto found = nodes_.find(page);
    if (found != nodes_.end() && is_unused(*found->second)) mark_unused(*found->second);
  }
}

// Removes one node without children and its use of the page.
void PrefixIndex::remove(Node& node) {
  GIMBAL_CHECK(node.children.empty());
  if (is_unused(node)) {
    --num_unused_;
    leaves_.erase({node.last_use, node.page});
  }
  nodes_.erase(node.page);
  pool_.give_back(node.page);
  Node* parent = node.parent;
  const std::string salt = node.salt;
  const std::vector<int32_t> key = node.tokens;
  Children& siblings = parent != nullptr ? parent->children : roots_.at(salt);
  siblings.erase(key);  // ends `node`
  if (!siblings.empty()) return;
  if (parent == nullptr) {
    roots_.erase(salt);
  } else if (is_unused(*parent)) {
    leaves_.insert({parent->last_use, parent->page});
  }
}

// Removes a node and all below it. Pages below that are in use lose only their place in the index.
void PrefixIndex::remove_tree(Node& top) {
  std::vector<Node*> order = {&top};  // parents before children
  for (size_t i = 0; i < order.size(); ++i) {
    for (const auto& [key, child] : order[i]->children) order.push_back(child.get());
  }
  for (auto node = order.rbegin(); node != order.rend(); ++node) remove(**node);
}

int64_t PrefixIndex::evict(int64_t count) {
  const int64_t before = num_unused_;
  while (before - num_unused_ < count && num_unused_ > 0) {
    if (!leaves_.empty()) {
      remove(*nodes_.at(leaves_.begin()->second));
      continue;
    }
    // Rare: a fork of a sequence that came back from host memory uses an indexed page without those before it.
    Node* oldest = nullptr;
    for (const auto& [page, node] : nodes_) {
      if (!is_unused(*node)) continue;
      if (oldest == nullptr || std::pair(node->last_use, page) < std::pair(oldest->last_use, oldest->page))
        oldest = node;
    }
    remove_tree(*oldest);
  }
  return before - num_unused_;
}

bool PrefixIndex::is_consistent() const {
  int64_t unused = 0;
  size_t unused_leaves = 0;
  for (const auto& [page, node] : nodes_) {
    if (node->page != page || pool_.num_users(page) < 1) return false;
    if (node->parent != nullptr && !nodes_.contains(node->parent->page)) return false;
    if (!is_unused(*node)) continue;
    ++unused;
    unused_leaves += node->children.empty() ? 1 : 0;
  }
  return unused == num_unused_ && unused_leaves == leaves_.size();
}

}  // namespace gimbal
