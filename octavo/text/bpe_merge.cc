#include "octavo/text/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace octavo::text {

MergeMap::MergeMap(size_t count) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, count + count / 2));
  slots_.assign(slots, Slot{kEmpty, {}});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  const size_t words = std::bit_ceil(std::max<size_t>(16, count / 8));
  filter_.assign(words, 0);
  filter_shift_ = 64 - std::countr_zero(words);
}

void MergeMap::Set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  const uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
  filter_[hash >> filter_shift_] |= uint64_t{1} << (hash >> 32 & 63);
  size_t slot = hash >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) ++count_;
  slots_[slot] = {key, merge};
  largest_rank_ = std::max(largest_rank_, merge.rank);
}

void RankQueue::Reset(int32_t largest) {
  // A loop that was left by an exception may have left entries.
  for (int32_t rank : ranks_) list_of_[static_cast<size_t>(rank)] = -1;
  ranks_.clear();
  free_.clear();
  for (size_t i = 0; i < lists_.size(); ++i) {
    lists_[i].ordered.clear();
    lists_[i].early.clear();
    lists_[i].head = 0;
    free_.push_back(static_cast<int32_t>(i));
  }
  if (list_of_.size() <= static_cast<size_t>(largest)) list_of_.resize(static_cast<size_t>(largest) + 1, -1);
}

void RankQueue::Push(int32_t rank, uint32_t place) {
  int32_t& index = list_of_[static_cast<size_t>(rank)];
  if (index < 0) {
    if (free_.empty()) {
      free_.push_back(static_cast<int32_t>(lists_.size()));
      lists_.emplace_back();
    }
    index = free_.back();
    free_.pop_back();
    ranks_.push_back(rank);
    std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
  }
  List& list = lists_[static_cast<size_t>(index)];
  if (list.head == list.ordered.size() || place >= list.ordered.back()) {
    list.ordered.push_back(place);
  } else {
    list.early.push_back(place);
    std::push_heap(list.early.begin(), list.early.end(), std::greater<>());
  }
}

bool RankQueue::Pop(int32_t& rank, uint32_t& place) {
  if (ranks_.empty()) return false;
  rank = ranks_.front();
  int32_t& index = list_of_[static_cast<size_t>(rank)];
  List& list = lists_[static_cast<size_t>(index)];
  const bool has_ordered = list.head < list.ordered.size();
  if (!list.early.empty() && (!has_ordered || list.early.front() < list.ordered[list.head])) {
    place = list.early.front();
    std::pop_heap(list.early.begin(), list.early.end(), std::greater<>());
    list.early.pop_back();
  } else {
    place = list.ordered[list.head++];
  }
  if (list.head < list.ordered.size() || !list.early.empty()) return true;
  list.ordered.clear();
  list.head = 0;
  free_.push_back(index);
  index = -1;
  std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
  ranks_.pop_back();
  return true;
}

namespace {

// Few symbols: rank and place in one number, whose minimum over all places is the next merge. The places stay where
// they are, so that the search is one loop over a short array.
void MergeInPlace(const MergeMap& merges, std::vector<Symbol>& symbols, const Merge* pairs) {
  const size_t count = symbols.size();
  int32_t keys[kFewSymbols];  // rank * 128 + place, or kNoRank
  int32_t results[kFewSymbols];
  uint8_t next[kFewSymbols];
  uint8_t previous[kFewSymbols];
  const auto set = [&](size_t at, Merge merge) {
    keys[at] =
        merge.rank == kNoRank ? kNoRank : static_cast<int32_t>(static_cast<size_t>(merge.rank) * kFewSymbols + at);
    results[at] = merge.id;
  };
  for (size_t i = 0; i < count; ++i) {
    next[i] = static_cast<uint8_t>(i + 1);
    previous[i] = static_cast<uint8_t>(i == 0 ? 0 : i - 1);
    set(i, i + 1 < count ? pairs[i] : Merge{});
  }
  while (true) {
    int32_t best = kNoRank;
    for (size_t i = 0; i < count; ++i) best = std::min(best, keys[i]);
    if (best == kNoRank) break;
    const size_t at = static_cast<size_t>(best) % kFewSymbols;
    symbols[at].id = results[at];
    const size_t gone = next[at];
    const size_t after = next[gone];
    symbols[gone].id = -1;
    keys[gone] = kNoRank;
    next[at] = static_cast<uint8_t>(after);
    if (after < count) {
      previous[after] = static_cast<uint8_t>(at);
      set(at, merges.Find(symbols[at].id, symbols[after].id));
    } else {
      keys[at] = kNoRank;
    }
    if (at > 0) set(previous[at], merges.Find(symbols[previous[at]].id, symbols[at].id));
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

// Many symbols: a queue of (rank, place) over a linked list. Entries that no longer hold are skipped when they come up.
void MergeByQueue(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Merge>& pairs = scratch.pairs;
  RankQueue& queue = scratch.queue;
  scratch.next.resize(count);
  scratch.previous.resize(count);
  queue.Reset(merges.largest_rank());
  for (uint32_t i = 0; i < count; ++i) {
    scratch.next[i] = i + 1 < count ? i + 1 : kEnd;
    scratch.previous[i] = i == 0 ? kEnd : i - 1;
    if (i + 1 < count && pairs[i].rank != kNoRank) queue.Push(pairs[i].rank, i);
  }
  pairs[count - 1] = {};
  const auto push = [&](uint32_t at) {
    pairs[at] = merges.Find(symbols[at].id, symbols[scratch.next[at]].id);
    if (pairs[at].rank != kNoRank) queue.Push(pairs[at].rank, at);
  };
  int32_t rank;
  uint32_t at;
  while (queue.Pop(rank, at)) {
    if (pairs[at].rank != rank) continue;
    symbols[at].id = pairs[at].id;
    const uint32_t gone = scratch.next[at];
    const uint32_t after = scratch.next[gone];
    pairs[gone] = {};
    pairs[at] = {};
    symbols[gone].id = -1;
    scratch.next[at] = after;
    // The left neighbour first: places then reach the lists almost in order.
    if (scratch.previous[at] != kEnd) push(scratch.previous[at]);
    if (after != kEnd) {
      scratch.previous[after] = at;
      push(at);
    }
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace

void MergeSymbols(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFewSymbols && merges.RanksAreSmall()) {
    MergeInPlace(merges, symbols, scratch.pairs.data());
  } else {
    MergeByQueue(merges, symbols, scratch);
  }
}

void MergeReference(const MergeMap& merges, std::vector<Symbol>& symbols) {
  while (true) {
    Merge best;
    size_t where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = merges.Find(symbols[i].id, symbols[i + 1].id);
      if (merge.rank < best.rank) {
        best = merge;
        where = i;
      }
    }
    if (best.rank == kNoRank) return;
    symbols[where].id = best.id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
}

}  // namespace octavo::text
