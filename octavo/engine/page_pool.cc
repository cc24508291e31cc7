#include "octavo/engine/page_pool.h"

#include <functional>

#include "octavo/base/check.h"

namespace octavo::engine {

size_t PagePool::ContentHash::operator()(const Content& content) const {
  uint64_t hash = 1469598103934665603u ^ content.parent;
  hash = (hash ^ std::hash<std::string>()(content.root)) * 1099511628211u;
  for (int32_t token : content.tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
  return hash;
}

PagePool::PagePool(int64_t pages) : pages_(static_cast<size_t>(pages)) {
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

PagePool::Page& PagePool::At(int32_t page) {
  OCTAVO_CHECK(page >= 0 && page < size());
  return pages_[static_cast<size_t>(page)];
}

const PagePool::Page& PagePool::At(int32_t page) const {
  OCTAVO_CHECK(page >= 0 && page < size());
  return pages_[static_cast<size_t>(page)];
}

void PagePool::Drop(Page& page) {
  by_content_.erase(by_content_.find(*page.content));
  page.node = 0;
  page.content = nullptr;
}

int32_t PagePool::Take() {
  OCTAVO_CHECK(available() > 0);
  int32_t page = 0;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    page = idle_.begin()->second;
    idle_.erase(idle_.begin());
    Drop(At(page));
  }
  At(page).references = 1;
  return page;
}

void PagePool::Share(int32_t page) {
  Page& at = At(page);
  if (at.references++ == 0) idle_.erase({at.idle_since, page});
}

void PagePool::Release(int32_t page) {
  Page& at = At(page);
  OCTAVO_CHECK(at.references > 0);
  if (--at.references > 0) return;
  if (at.node == 0) {
    free_.push_back(page);
  } else {
    at.idle_since = ++clock_;
    idle_.emplace(at.idle_since, page);
  }
}

std::optional<PagePool::Known> PagePool::Find(Node parent, const std::string& root,
                                              std::span<const int32_t> tokens) const {
  const auto at = by_content_.find({parent, parent == 0 ? root : "", {tokens.begin(), tokens.end()}});
  if (at == by_content_.end()) return std::nullopt;
  return Known{at->second, At(at->second).node};
}

PagePool::Node PagePool::Remember(Node parent, const std::string& root, std::span<const int32_t> tokens, int32_t page) {
  const auto [at, fresh] =
      by_content_.try_emplace({parent, parent == 0 ? root : "", {tokens.begin(), tokens.end()}}, page);
  if (fresh) {
    Page& owner = At(page);
    OCTAVO_CHECK(owner.references > 0 && owner.node == 0);
    owner.node = next_node_++;
    owner.content = &at->first;
  }
  return At(at->second).node;
}

void PagePool::Forget() {
  for (const auto& [since, page] : idle_) free_.push_back(page);
  idle_.clear();
  for (Page& page : pages_) {
    if (page.node != 0) Drop(page);
  }
}

}  // namespace octavo::engine
