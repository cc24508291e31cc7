// The bytes that each token of a tokenizer adds to a text, as a tree of prefixes: what a grammar over bytes needs to
// say which tokens may come next. Made once per model and shared by all requests; also the one place where masks of
// grammars are kept, within a bound. Used by json_schema.h. Knows nothing of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

class Tokenizer;
class MaskCache;

// Immutable but for the cache inside, which locks itself; any number of threads may use one.
class VocabularyBytes {
 public:
  // Throws a usage Error for a tokenizer whose text is not the bytes of its tokens one after the other (WordPiece and
  // other decoders that look at neighbours). The tokenizer is not kept.
  static std::shared_ptr<const VocabularyBytes> Make(const Tokenizer& tokenizer, size_t cache_bytes = size_t{48} << 20);
  // The same from the bytes by id; an empty entry is a token that never stands in a text.
  static std::shared_ptr<const VocabularyBytes> Make(std::span<const std::string_view> bytes,
                                                     std::vector<int32_t> end_ids,
                                                     size_t cache_bytes = size_t{48} << 20);
  ~VocabularyBytes();
  VocabularyBytes(const VocabularyBytes&) = delete;
  VocabularyBytes& operator=(const VocabularyBytes&) = delete;

  // A node of the tree, in depth-first order: the children of a node follow it.
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;        // of the root's children: 1
    uint32_t end = 0;          // the first node after the subtree
    uint32_t first_token = 0;  // in tokens(), up to first_token of the next node
  };
  std::span<const Node> nodes() const { return nodes_; }    // one more at the end, for first_token
  std::span<const int32_t> tokens() const { return ids_; }  // ids in the order of the nodes
  std::string_view bytes(int32_t id) const;                 // empty for special tokens and ids without a token
  int32_t size() const { return static_cast<int32_t>(ends_.size()); }
  size_t longest() const { return longest_; }  // bytes of the longest token
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  MaskCache& cache() const { return *cache_; }

 private:
  VocabularyBytes();
  std::string all_;
  std::vector<uint32_t> ends_;  // by id: where its bytes end in all_
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> end_ids_;
  size_t longest_ = 0;
  std::unique_ptr<MaskCache> cache_;
};

}  // namespace octavo::text
