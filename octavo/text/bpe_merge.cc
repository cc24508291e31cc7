#include "octavo/text/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace octavo::text {

MergeMap::MergeMap(size_t count) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, count + count / 2));
  slots_.assign(slots, Slot{kEmpty, {}});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeMap::Set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t slot = Hash(key);
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) ++count_;
  slots_[slot] = {key, merge};
}

namespace {

// Few symbols: the smallest rank is found by looking at all of them, and the arrays stay dense.
void MergeInPlace(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch) {
  size_t count = symbols.size();
  scratch.ranks.resize(count);
  int32_t* const ranks = scratch.ranks.data();
  Merge* const pairs = scratch.pairs.data();
  Symbol* const symbol = symbols.data();
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = pairs[i].rank;
  const auto erase = [&](auto* array, size_t at, size_t length) {
    std::memmove(array + at, array + at + 1, (length - at - 1) * sizeof *array);
  };
  while (count > 1) {
    int32_t best = kNoRank;
    for (size_t i = 0; i + 1 < count; ++i) best = std::min(best, ranks[i]);
    if (best == kNoRank) break;
    size_t at = 0;
    while (ranks[at] != best) ++at;
    symbol[at].id = pairs[at].id;
    erase(symbol, at + 1, count);
    erase(ranks, at, count - 1);
    erase(pairs, at, count - 1);
    --count;
    const auto look_up = [&](size_t i) {
      pairs[i] = merges.Find(symbol[i].id, symbol[i + 1].id);
      ranks[i] = pairs[i].rank;
    };
    if (at + 1 < count) look_up(at);
    if (at > 0) look_up(at - 1);
  }
  symbols.resize(count);
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
  if (symbols.size() <= kFewSymbols) {
    MergeInPlace(merges, symbols, scratch);
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
