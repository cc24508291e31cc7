// A trie over bytes in flat arrays: which known strings start here? Used by Unigram, WordPiece and the added tokens.
// Built once; a look-up walks one node a byte, without recursion or allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::text {

class ByteTrie {
 public:
  // Longest key accepted: it bounds the work of a look-up.
  static constexpr size_t kMaxKey = 1024;

  ByteTrie() = default;
  // From keys and their values (>= 0). Of equal keys the last one counts; empty keys are left out. Throws a file Error
  // for a key that is too long.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return nodes_.empty(); }

  // Calls visit(length, value) for each key that is a prefix of `text`, shortest first. visit returns false to stop.
  template <typename Visit>
  void Prefixes(std::string_view text, Visit visit) const {
    if (nodes_.empty() || text.empty()) return;
    uint32_t node = root_[static_cast<unsigned char>(text[0])];
    size_t length = 1;
    while (node != 0) {
      if (nodes_[node].value >= 0 && !visit(length, nodes_[node].value)) return;
      if (length == text.size()) return;
      node = Child(node, static_cast<unsigned char>(text[length]));
      ++length;
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    int32_t value = -1;
  };

  uint32_t Child(uint32_t node, unsigned char byte) const {
    const Node& parent = nodes_[node];
    const unsigned char* begin = labels_.data() + parent.first_child;
    const unsigned char* end = begin + parent.children;
    const unsigned char* found =
        parent.children > 16 ? std::lower_bound(begin, end, byte) : std::find(begin, end, byte);
    return found != end && *found == byte ? parent.first_child + static_cast<uint32_t>(found - begin) : 0;
  }

  std::vector<Node> nodes_;            // breadth first: the children of a node lie side by side, ascending
  std::vector<unsigned char> labels_;  // the byte that leads to each node
  std::array<uint32_t, 256> root_{};   // the children of the root by byte
};

}  // namespace octavo::text
