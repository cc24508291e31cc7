// Which page of the key-value cache belongs to whom: references, the free ones, and those known by content, so that a
// prompt that begins like an earlier one shares its pages. Numbers only: the memory is the runner's. Known pages that
// nobody uses stay until their room is needed, the longest unused first. Used by the runner, on its one thread.
//
// Content is compared, not hashed: a page is the child of the page before it and holds exactly these tokens. The first
// page of a sequence hangs under a root text (adapter and scope), so different scopes never share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace octavo::engine {

class PagePool {
 public:
  using Node = uint64_t;  // a known content; 0: none, the beginning of a sequence

  explicit PagePool(int64_t pages);

  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  int64_t available() const { return static_cast<int64_t>(free_.size() + idle_.size()); }

  // A page for one owner. There must be one available.
  int32_t Take();
  void Share(int32_t page);
  // Gives one reference back. Known pages become idle with the last one, others free.
  void Release(int32_t page);
  bool IsShared(int32_t page) const { return At(page).references > 1; }

  // The full page with these tokens behind `parent` (or, with parent 0, at the beginning under `root`).
  struct Known {
    int32_t page;
    Node node;
  };
  std::optional<Known> Find(Node parent, const std::string& root, std::span<const int32_t> tokens) const;
  // Makes a full page known and gives its node: that of another page when the content is known already.
  Node Remember(Node parent, const std::string& root, std::span<const int32_t> tokens, int32_t page);
  // Forgets all contents; idle pages become free.
  void Forget();

  int64_t known() const { return static_cast<int64_t>(by_content_.size()); }

 private:
  struct Content {
    Node parent = 0;
    std::string root;  // only without a parent
    std::vector<int32_t> tokens;
    bool operator==(const Content&) const = default;
  };
  struct ContentHash {
    size_t operator()(const Content& content) const;
  };
  struct Page {
    int64_t references = 0;
    Node node = 0;  // 0: not known
    uint64_t idle_since = 0;
    const Content* content = nullptr;
  };
  Page& At(int32_t page);
  const Page& At(int32_t page) const;
  void Drop(Page& page);  // from the known contents

  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  std::set<std::pair<uint64_t, int32_t>> idle_;  // known and unused, oldest first
  std::unordered_map<Content, int32_t, ContentHash> by_content_;
  uint64_t clock_ = 0;
  Node next_node_ = 1;
};

}  // namespace octavo::engine
