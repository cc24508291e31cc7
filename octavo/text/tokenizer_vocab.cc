#include "octavo/text/tokenizer_vocab.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::text {

void Vocabulary::Reserve(size_t count, size_t bytes) {
  bytes_.reserve(bytes);
  texts_.reserve(std::min<size_t>(count, kMaxVocabulary));
  Grow(std::bit_ceil(std::max<size_t>(16, count * 2)));
}

void Vocabulary::Grow(size_t slots) {
  if (slots <= slots_.size()) return;
  std::vector<int32_t> old = std::exchange(slots_, std::vector<int32_t>(slots, -1));
  for (int32_t id : old) {
    if (id >= 0) slots_[Slot(View(texts_[static_cast<size_t>(id)]))] = id;
  }
}

size_t Vocabulary::Slot(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashBytes(token.data(), token.size()) & mask;
  while (slots_[slot] >= 0 && View(texts_[static_cast<size_t>(slots_[slot])]) != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::Add(std::string_view token, int64_t id) {
  if (id < 0 || id >= kMaxVocabulary) {
    ThrowFile("token '{}' has id {}: expected 0 to {}", token.substr(0, 60), id, kMaxVocabulary - 1);
  }
  if ((count_ + 1) * 2 > slots_.size()) Grow(std::bit_ceil(std::max<size_t>(16, (count_ + 1) * 4)));
  const auto index = static_cast<size_t>(id);
  const size_t slot = Slot(token);
  if (slots_[slot] == id) return;
  if (index >= texts_.size()) texts_.resize(index + 1);
  if (slots_[slot] < 0) ++count_;
  if (texts_[index].length != kHole) {
    ThrowFile("tokens '{}' and '{}' have the same id {}", View(texts_[index]).substr(0, 60), token.substr(0, 60), id);
  }
  texts_[index] = {bytes_.size(), static_cast<uint32_t>(token.size())};
  bytes_.append(token);
  slots_[slot] = static_cast<int32_t>(id);
}

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[Slot(token)];
  if (id < 0) return std::nullopt;
  return id;
}

std::optional<std::string_view> Vocabulary::Text(int32_t id) const {
  if (id < 0 || id >= size() || texts_[static_cast<size_t>(id)].length == kHole) return std::nullopt;
  return View(texts_[static_cast<size_t>(id)]);
}

}  // namespace octavo::text
