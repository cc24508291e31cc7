// The merge loop of byte pair encoding: of all neighbours that have a merge, the one of lowest rank (leftmost first) is
// merged, until none is left. Used by bpe.cc. Three ways with one result: few symbols are searched in place, many go
// through a heap over a linked list, and MergeReference states the rule in ten lines for the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo::text {

constexpr int32_t kNoRank = INT32_MAX;

struct Merge {
  int32_t rank = kNoRank;
  int32_t id = -1;  // the merged token
};

// (left, right) -> merge. Open addressing; immutable once filled.
class MergeMap {
 public:
  explicit MergeMap(size_t count = 0);
  // The last merge of a pair counts.
  void Set(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    const uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
    // Most pairs have no merge. One bit of a small map, which stays in the near caches, says so.
    if ((filter_[hash >> filter_shift_] >> (hash >> 32 & 63) & 1) == 0) return {};
    size_t slot = hash >> shift_;
    while (true) {
      const Slot& entry = slots_[slot];
      if (entry.key == key) return entry.merge;
      if (entry.key == kEmpty) return {};
      slot = (slot + 1) & mask_;
    }
  }
  size_t size() const { return count_; }
  // Rank and place among few symbols fit one int32_t.
  int32_t largest_rank() const { return largest_rank_; }
  bool RanksAreSmall() const { return largest_rank_ < (1 << 24) - 1; }
  // Adds to `out` the merges whose result drop(id) does not name; true when it named one.
  template <typename Drop>
  bool CopyWithout(Drop drop, MergeMap& out) const {
    bool dropped = false;
    for (const Slot& slot : slots_) {
      if (slot.key == kEmpty) continue;
      if (drop(slot.merge.id)) {
        dropped = true;
      } else {
        out.Set(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & 0xFFFFFFFF), slot.merge);
      }
    }
    return dropped;
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> filter_;  // eight bits or more for each merge
  size_t mask_ = 0;
  int shift_ = 0;
  int filter_shift_ = 0;
  size_t count_ = 0;
  int32_t largest_rank_ = 0;
};

// One symbol on its way: a token and where it starts in the word.
struct Symbol {
  int32_t id;
  uint32_t begin;
};

// A queue of (rank, place), lowest first, made for many places of few ranks: one list for each rank, which the merge
// loop fills almost in order.
class RankQueue {
 public:
  // Empties the queue and makes room for ranks up to `largest`.
  void Reset(int32_t largest);
  void Push(int32_t rank, uint32_t place);
  // False when it is empty.
  bool Pop(int32_t& rank, uint32_t& place);

 private:
  struct List {
    std::vector<uint32_t> ordered;  // ascending from `head`
    std::vector<uint32_t> early;    // a heap of those that came out of order
    size_t head = 0;
  };
  std::vector<int32_t> list_of_;  // by rank, or -1
  std::vector<List> lists_;
  std::vector<int32_t> free_;
  std::vector<int32_t> ranks_;  // a heap of the ranks that have a list
};

// Buffers of the merge loops, kept between words.
struct MergeScratch {
  std::vector<Merge> pairs;  // the merge of each symbol with its right neighbour
  std::vector<uint32_t> next, previous;
  RankQueue queue;
};

// Up to this many symbols are searched in place.
constexpr size_t kFewSymbols = 128;

// Merges `symbols` in place. `pairs` of the scratch must hold the merge of each symbol with the next one.
void MergeSymbols(const MergeMap& merges, std::vector<Symbol>& symbols, MergeScratch& scratch);

// The same from the definition, quadratic.
void MergeReference(const MergeMap& merges, std::vector<Symbol>& symbols);

}  // namespace octavo::text
