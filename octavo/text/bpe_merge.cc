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

// Many symbols: a heap of (rank, position) over a linked list. Entries that no longer hold are skipped when they come
// up.
void MergeByHeap(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Merge>& pairs = scratch.pairs;
  std::vector<uint64_t>& heap = scratch.heap;
  scratch.next.resize(count);
  scratch.previous.resize(count);
  heap.clear();
  const auto entry = [](int32_t rank, uint32_t at) {
    return static_cast<uint64_t>(static_cast<uint32_t>(rank)) << 32 | at;
  };
  for (uint32_t i = 0; i < count; ++i) {
    scratch.next[i] = i + 1 < count ? i + 1 : kEnd;
    scratch.previous[i] = i == 0 ? kEnd : i - 1;
    if (i + 1 < count && pairs[i].rank != kNoRank) heap.push_back(entry(pairs[i].rank, i));
  }
  pairs[count - 1] = {};
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t at) {
    pairs[at] = merges.Find(symbols[at].id, symbols[scratch.next[at]].id);
    if (pairs[at].rank == kNoRank) return;
    heap.push_back(entry(pairs[at].rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (pairs[at].rank != static_cast<int32_t>(top >> 32)) continue;
    symbols[at].id = pairs[at].id;
    const uint32_t gone = scratch.next[at];
    const uint32_t after = scratch.next[gone];
    pairs[gone] = {};
    pairs[at] = {};
    symbols[gone].id = -1;
    scratch.next[at] = after;
    if (after != kEnd) {
      scratch.previous[after] = at;
      push(at);
    }
    if (scratch.previous[at] != kEnd) push(scratch.previous[at]);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace

void MergeSymbols(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFewSymbols && merges.RanksAreSmall()) {
    MergeInPlace(merges, symbols, scratch.pairs.data());
  } else {
    MergeByHeap(merges, symbols, scratch);
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
