// Masks of tokens that grammars have worked out, kept until there are too many bytes of them: the ones not asked for
// the longest go first. In memory only. Used through vocabulary_bytes.h; locks itself.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace octavo::text {

// The tokens that may follow one place of a grammar.
struct TokenMask {
  std::vector<uint32_t> words;    // a bit per token; empty when there are few
  std::vector<int32_t> ids;       // or one by one
  std::vector<uint32_t> returns;  // nodes of the tree behind which the place's rule has ended and tokens go on

  size_t bytes() const { return sizeof *this + 4 * (words.size() + ids.size() + returns.size()); }
};

class MaskCache {
 public:
  using Key = std::array<uint64_t, 4>;

  explicit MaskCache(size_t most_bytes) : most_(most_bytes) {}

  // Null when it is not there.
  std::shared_ptr<const TokenMask> Find(const Key& key);
  void Put(const Key& key, std::shared_ptr<const TokenMask> mask);

  size_t bytes() const;

 private:
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const TokenMask> mask;
  };
  static constexpr size_t kOverhead = 200;  // of an entry, in the list and the table

  mutable std::mutex mutex_;
  size_t most_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // the latest first
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> places_;
};

}  // namespace octavo::text
