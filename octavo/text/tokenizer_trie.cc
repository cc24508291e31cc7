#include "octavo/text/tokenizer_trie.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  if (entries.empty()) return;
  for (const auto& [key, value] : entries) {
    if (key.size() > kMaxKey) {
      ThrowFile("token '{}…' has {} bytes: at most {} are accepted", key.substr(0, 40), key.size(), kMaxKey);
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

  // Each node stands for the run [begin, end) of sorted keys that share its first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, entries.size(), 0}};
  nodes_.push_back({});
  labels_.push_back(0);
  for (size_t at = 0; at < ranges.size(); ++at) {
    const Range range = ranges[at];
    size_t begin = range.begin;
    while (begin < range.end && entries[begin].first.size() == range.depth) {
      nodes_[at].value = entries[begin].second;
      ++begin;
    }
    nodes_[at].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < range.end) {
      const char byte = entries[begin].first[range.depth];
      size_t end = begin + 1;
      while (end < range.end && entries[end].first[range.depth] == byte) ++end;
      nodes_.push_back({});
      labels_.push_back(static_cast<unsigned char>(byte));
      ranges.push_back({begin, end, range.depth + 1});
      ++nodes_[at].children;
      if (at == 0) root_[static_cast<unsigned char>(byte)] = static_cast<uint32_t>(nodes_.size() - 1);
      begin = end;
    }
  }
}

}  // namespace octavo::text
