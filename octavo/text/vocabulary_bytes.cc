#include "octavo/text/vocabulary_bytes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/mask_cache.h"
#include "octavo/text/tokenizer.h"

namespace octavo::text {

size_t MaskCache::Hash::operator()(const Key& key) const {
  uint64_t hash = 0;
  for (uint64_t word : key) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<const TokenMask> MaskCache::Find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->mask;
}

void MaskCache::Put(const Key& key, std::shared_ptr<const TokenMask> mask) {
  const size_t size = mask->bytes() + kOverhead;
  const std::lock_guard lock(mutex_);
  if (size > most_ || places_.contains(key)) return;
  bytes_ += size;
  entries_.push_front({key, std::move(mask)});
  places_[key] = entries_.begin();
  while (bytes_ > most_) {
    bytes_ -= entries_.back().mask->bytes() + kOverhead;
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

size_t MaskCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

VocabularyBytes::VocabularyBytes() = default;
VocabularyBytes::~VocabularyBytes() = default;

std::shared_ptr<const VocabularyBytes> VocabularyBytes::Make(const Tokenizer& tokenizer, size_t cache_bytes) {
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.vocabulary_size()));
  bool any = false;
  for (size_t id = 0; id < texts.size(); ++id) {
    texts[id] = tokenizer.TokenBytes(static_cast<int32_t>(id)).value_or("");
    any = any || !texts[id].empty();
  }
  if (!any) {
    throw Error(
        ErrorCode::kUsage, "structured output is not possible with this tokenizer",
        fmt::format("the text of {} is not the bytes of its tokens one after the other", tokenizer.description()));
  }
  std::vector<int32_t> end_ids;
  if (tokenizer.roles().eos) end_ids.push_back(*tokenizer.roles().eos);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return Make(views, std::move(end_ids), cache_bytes);
}

std::shared_ptr<const VocabularyBytes> VocabularyBytes::Make(std::span<const std::string_view> bytes,
                                                             std::vector<int32_t> end_ids, size_t cache_bytes) {
  std::shared_ptr<VocabularyBytes> made(new VocabularyBytes);
  made->end_ids_ = std::move(end_ids);
  made->cache_ = std::make_unique<MaskCache>(cache_bytes);
  made->ends_.reserve(bytes.size());
  for (std::string_view text : bytes) {
    // A token of more bytes than a depth can hold is none that a model would use in JSON.
    if (text.size() < 0xFFFF) made->all_ += text;
    made->ends_.push_back(static_cast<uint32_t>(made->all_.size()));
    if (text.size() < 0xFFFF) made->longest_ = std::max(made->longest_, text.size());
  }
  std::vector<int32_t>& ids = made->ids_;
  for (int32_t id = 0; id < made->size(); ++id) {
    if (!made->bytes(id).empty()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const int order = made->bytes(a).compare(made->bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  // In the order of their bytes, each token adds the nodes that the one before it has not.
  std::vector<Node>& nodes = made->nodes_;
  std::vector<uint32_t> open;  // the path to the latest node
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes[open.back()].end = static_cast<uint32_t>(nodes.size());
  };
  for (size_t at = 0; at < ids.size(); ++at) {
    const std::string_view text = made->bytes(ids[at]);
    size_t common = 0;
    while (common < open.size() && common < text.size() &&
           nodes[open[common]].byte == static_cast<uint8_t>(text[common])) {
      ++common;
    }
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes.size()));
      nodes.push_back(
          {static_cast<uint8_t>(text[depth]), static_cast<uint16_t>(depth + 1), 0, static_cast<uint32_t>(at)});
    }
  }
  close(0);
  // The nodes on the way to a token have none of their own: theirs begin where the next node's do.
  nodes.push_back({0, 0, 0, static_cast<uint32_t>(ids.size())});
  return made;
}

std::string_view VocabularyBytes::bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const uint32_t begin = id == 0 ? 0 : ends_[static_cast<size_t>(id) - 1];
  return std::string_view(all_).substr(begin, ends_[static_cast<size_t>(id)] - begin);
}

}  // namespace octavo::text
