// The door of the backward pass: which units of work there are and how threads share them.
#include <algorithm>
#include <atomic>
#include <span>

#include "octavo/kernels/attention.h"
#include "octavo/kernels/attention_check.h"
#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_ref.h"

namespace octavo::kernels {
namespace {

enum Slot { kScratch, kSides };

constexpr int64_t kWaveFloats = 32 << 20;  // most floats of packed rows at a time when threads share units, 128 MiB

struct Job {
  BackwardUnit unit;
  double work;  // pairs of a query and a key that it sees
};

std::vector<Job> JobsOf(Isa isa, const AttentionCall& call, const AttentionGradients& gradients) {
  std::vector<Job> jobs;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    const AttentionSequence& sequence = call.sequences[s];
    double pairs = 0;
    for (int64_t i = 0; i < sequence.query_count; ++i) {
      const KeyRange seen = VisibleKeys(call.shape, sequence.position + i, sequence.kv_length);
      pairs += static_cast<double>(std::max<int64_t>(seen.end - seen.begin, 0) + 8);
    }
    for (int64_t kv_head = 0; kv_head < call.shape.kv_heads; ++kv_head) {
      Job job;
      job.unit.call = &call;
      job.unit.tiles = isa >= Isa::kAvx512 ? &kAttentionTilesAvx512 : &kAttentionTilesAvx2;
      job.unit.gradients = &gradients;
      job.unit.sequence_index = s;
      job.unit.kv_head = kv_head;
      job.work = pairs;
      jobs.push_back(job);
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.work > b.work; });
  return jobs;
}

// A unit on one thread needs five products; shared by threads it needs seven, since both kinds of outputs then compute
// the weights. True when whole units balance well enough.
bool WholeUnitsPay(const std::vector<Job>& jobs, int threads) {
  std::vector<double> load(threads);
  double total = 0;
  for (const Job& job : jobs) {
    *std::min_element(load.begin(), load.end()) += job.work;
    total += job.work;
  }
  return *std::max_element(load.begin(), load.end()) * 5 <= total / threads * 7;
}

template <typename Work>
void RunTasks(ThreadPool& pool, int64_t count, Work work) {
  std::atomic<int64_t> next{0};
  pool.Run([&](int worker, int) {
    for (int64_t at = next.fetch_add(1); at < count; at = next.fetch_add(1)) work(worker, at);
  });
}

void WholeUnit(const BackwardUnit& unit, float* scratch) {
  const int64_t key_blocks = KeyBlocks(unit.sequence()), query_blocks = QueryBlocks(unit.sequence());
  PackKeySideAvx2(unit, 0, key_blocks);
  for (int64_t head = 0; head < unit.group(); ++head) {
    PackQuerySideAvx2(unit, head, 0, query_blocks);
    AddKeyBlocksAvx2(unit, head, 0, key_blocks, true, scratch);
    StoreGradQueriesAvx2(unit, head, 0, query_blocks);
    StoreGradSinkAvx2(unit, head);
  }
  StoreGradKeysAvx2(unit, 0, key_blocks);
}

void RunWholeUnits(ThreadPool& pool, Workspace& workspace, std::vector<Job>& jobs) {
  const AttentionShape& shape = jobs[0].unit.call->shape;
  int64_t key_floats = 0, head_floats = 0;
  for (const Job& job : jobs) {
    key_floats = std::max(key_floats, KeySideFloats(shape, job.unit.sequence()));
    head_floats = std::max(head_floats, QuerySideFloats(shape, job.unit.sequence()));
  }
  const int64_t scratch_floats = BackwardScratchAvx2(shape), each = RoundUp(key_floats + head_floats, 1024);
  float* sides = workspace.Get<float>(kSides, each * pool.size());
  float* scratch = workspace.Get<float>(kScratch, scratch_floats * pool.size());
  RunTasks(pool, static_cast<int64_t>(jobs.size()), [&](int worker, int64_t at) {
    BackwardUnit unit = jobs[at].unit;
    unit.keys = sides + worker * each;
    unit.heads = unit.keys + key_floats;
    unit.one_head = true;
    WholeUnit(unit, scratch + worker * scratch_floats);
  });
}

// One piece of a unit that threads share: the gradients of one key block, or of one query block of one head (head >=
// 0).
struct Piece {
  const BackwardUnit* unit;
  int64_t head, block;
};

void RunPiece(const Piece& piece, float* scratch) {
  const BackwardUnit& unit = *piece.unit;
  if (piece.head < 0) {
    for (int64_t head = 0; head < unit.group(); ++head) {
      AddKeyBlocksAvx2(unit, head, piece.block, piece.block + 1, false, scratch);
    }
    StoreGradKeysAvx2(unit, piece.block, piece.block + 1);
  } else {
    AddQueryBlocksAvx2(unit, piece.head, piece.block, piece.block + 1, scratch);
    StoreGradQueriesAvx2(unit, piece.head, piece.block, piece.block + 1);
    if (piece.block == 0) StoreGradSinkAvx2(unit, piece.head);
  }
}

void RunShared(ThreadPool& pool, float* scratch, int64_t scratch_floats, std::span<const Job> jobs) {
  std::vector<Piece> pieces;
  for (const Job& job : jobs) {
    for (int64_t block = 0; block < KeyBlocks(job.unit.sequence()); ++block) pieces.push_back({&job.unit, -1, block});
    for (int64_t head = 0; head < job.unit.group(); ++head) {
      for (int64_t block = QueryBlocks(job.unit.sequence()); block-- > 0;) pieces.push_back({&job.unit, head, block});
    }
  }
  const auto count = static_cast<int64_t>(pieces.size());
  RunTasks(pool, count, [&](int, int64_t at) {
    const Piece& piece = pieces[at];
    if (piece.head < 0) {
      PackKeySideAvx2(*piece.unit, piece.block, piece.block + 1);
    } else {
      PackQuerySideAvx2(*piece.unit, piece.head, piece.block, piece.block + 1);
    }
  });
  RunTasks(pool, count, [&](int worker, int64_t at) { RunPiece(pieces[at], scratch + worker * scratch_floats); });
}

// Waves of units whose packed rows fit the budget together, at least one unit each.
void RunSharedUnits(ThreadPool& pool, Workspace& workspace, std::vector<Job>& jobs) {
  const AttentionShape& shape = jobs[0].unit.call->shape;
  const auto floats_of = [&](const Job& job) {
    return KeySideFloats(shape, job.unit.sequence()) + job.unit.group() * QuerySideFloats(shape, job.unit.sequence());
  };
  const int64_t scratch_floats = BackwardScratchAvx2(shape);
  float* scratch = workspace.Get<float>(kScratch, scratch_floats * pool.size());
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin;
    int64_t floats = 0;
    while (end < jobs.size() && (end == begin || floats + floats_of(jobs[end]) <= kWaveFloats)) {
      floats += floats_of(jobs[end++]);
    }
    float* at = workspace.Get<float>(kSides, floats);
    for (size_t i = begin; i < end; ++i) {
      jobs[i].unit.keys = at;
      jobs[i].unit.heads = at + KeySideFloats(shape, jobs[i].unit.sequence());
      at += floats_of(jobs[i]);
    }
    RunShared(pool, scratch, scratch_floats, std::span(jobs).subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

void AttentionBackward(ThreadPool& pool, Isa isa, Workspace& workspace, const AttentionCall& call,
                       const AttentionGradients& gradients) {
  CheckAttention(call, gradients);
  if (isa < Isa::kAvx2) return AttentionBackwardReference(pool, call, gradients);
  std::vector<Job> jobs = JobsOf(isa, call, gradients);
  if (jobs.empty()) return;
  if (WholeUnitsPay(jobs, pool.size())) {
    RunWholeUnits(pool, workspace, jobs);
  } else {
    RunSharedUnits(pool, workspace, jobs);
  }
}

}  // namespace octavo::kernels
