#include "octavo/kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "octavo/base/error.h"
#include "octavo/kernels/attention_check.h"
#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_ref.h"

namespace octavo::kernels {
namespace {

enum Slot { kScratch, kPartials, kPacked };

constexpr int64_t kPackedFloats = 8 << 20;  // most floats of keys and values packed at a time, 32 MiB

int64_t GroupOf(const AttentionShape& shape) { return shape.query_heads / shape.kv_heads; }

bool AreFew(int64_t rows) { return rows <= kFewRows; }

// Rows of one task: large enough to pay for reading the keys, small enough that every thread gets some.
int64_t RowsPerTask(const AttentionCall& call, int threads) {
  int64_t rows = 0;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    rows += call.sequences[s].query_count * GroupOf(call.shape) * call.shape.kv_heads;
  }
  int64_t block = kRowBlock;
  while (block > 16 && rows < block * threads * 3) block /= 2;
  return block;
}

// The tasks of one sequence and key head.
struct Unit {
  const AttentionSequence* sequence;
  int64_t kv_head;
  std::vector<ForwardTask> tasks;
  int64_t packed_floats;  // 0: the tasks read the keys themselves
};

Unit UnitOf(Isa isa, const AttentionCall& call, const AttentionResult& result, const AttentionSequence& sequence,
            int64_t kv_head, int64_t rows_per_task) {
  Unit unit{&sequence, kv_head, {}, 0};
  const int64_t rows = sequence.query_count * GroupOf(call.shape);
  for (int64_t begin = 0; begin < rows; begin += rows_per_task) {
    ForwardTask task;
    task.call = &call;
    task.tiles = isa >= Isa::kAvx512 ? &kAttentionTilesAvx512 : &kAttentionTilesAvx2;
    task.result = &result;
    task.sequence = &sequence;
    task.kv_head = kv_head;
    task.row_begin = begin;
    task.row_end = std::min(begin + rows_per_task, rows);
    const KeyRange seen = VisibleOfRows(task);
    if (seen.begin < seen.end) {
      task.super_begin = seen.begin / kSuperBlock;
      task.super_end = RoundUp(seen.end, kSuperBlock) / kSuperBlock;
    }
    unit.tasks.push_back(task);
  }
  const int64_t blocks = RoundUp(sequence.kv_length, kKeyBlock) / kKeyBlock;
  const int64_t floats = blocks * PackedFloats(call.shape);
  if (unit.tasks.size() > 1 && floats <= kPackedFloats) unit.packed_floats = floats;
  return unit;
}

// Few rows over many keys: super-blocks are independent, so each becomes a task of its own; `merges` gets the tasks
// that put them together.
std::vector<ForwardTask> SplitBySuper(Workspace& workspace, const std::vector<ForwardTask>& tasks,
                                      std::vector<ForwardTask>& merges) {
  std::vector<ForwardTask> split;
  int64_t floats = 0;
  for (const ForwardTask& task : tasks) {
    if (task.super_end - task.super_begin < 2) {
      split.push_back(task);
    } else {
      merges.push_back(task);
      floats += (task.super_end - task.super_begin) * PartialFloats(task.call->shape, task.row_end - task.row_begin);
    }
  }
  float* partial = workspace.Get<float>(kPartials, floats);
  for (ForwardTask& task : merges) {
    task.partial = partial;
    for (int64_t super = task.super_begin; super < task.super_end; ++super) {
      split.push_back(task);
      split.back().super_begin = super;
      split.back().super_end = super + 1;
      split.back().partial = partial;
      partial += PartialFloats(task.call->shape, task.row_end - task.row_begin);
    }
  }
  return split;
}

// The longest first, so that the last ones to finish are short.
void SortByWork(std::vector<ForwardTask>& tasks) {
  const auto work = [](const ForwardTask& task) {
    const KeyRange seen = VisibleOfRows(task);
    const int64_t keys =
        std::min(seen.end, task.super_end * kSuperBlock) - std::max(seen.begin, task.super_begin * kSuperBlock);
    return keys * (task.row_end - task.row_begin);
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const ForwardTask& a, const ForwardTask& b) { return work(a) > work(b); });
}

template <typename Work>
void RunTasks(ThreadPool& pool, int64_t count, Work work) {
  std::atomic<int64_t> next{0};
  pool.Run([&](int worker, int) {
    for (int64_t at = next.fetch_add(1); at < count; at = next.fetch_add(1)) work(worker, at);
  });
}

// Packs the keys and values of every unit that wants it, each block by one worker.
void PackUnits(ThreadPool& pool, Workspace& workspace, const AttentionCall& call, std::span<Unit> units) {
  struct Block {
    const Unit* unit;
    int64_t index;
    float* packed;
  };
  int64_t floats = 0;
  for (const Unit& unit : units) floats += unit.packed_floats;
  if (floats == 0) return;
  float* packed = workspace.Get<float>(kPacked, floats);
  std::vector<Block> blocks;
  for (Unit& unit : units) {
    if (unit.packed_floats == 0) continue;
    for (ForwardTask& task : unit.tasks) task.packed = packed;
    const int64_t one = PackedFloats(call.shape);
    for (int64_t b = 0; b < unit.packed_floats / one; ++b) blocks.push_back({&unit, b, packed + b * one});
    packed += unit.packed_floats;
  }
  pool.ParallelFor(static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const Block& block = blocks[at];
      PackKvAvx2(call, *block.unit->sequence, block.unit->kv_head, block.index, block.packed);
    }
  });
}

void RunWave(ThreadPool& pool, Workspace& workspace, const AttentionCall& call, std::span<Unit> units) {
  PackUnits(pool, workspace, call, units);
  std::vector<ForwardTask> tasks, merges;
  for (const Unit& unit : units) tasks.insert(tasks.end(), unit.tasks.begin(), unit.tasks.end());
  if (static_cast<int>(tasks.size()) < 3 * pool.size()) tasks = SplitBySuper(workspace, tasks, merges);
  SortByWork(tasks);
  const int64_t floats = RoundUp(std::max(ForwardScratchAvx2(call.shape), FewScratchAvx2(call.shape)), 1024);
  float* scratch = workspace.Get<float>(kScratch, floats * pool.size());
  RunTasks(pool, static_cast<int64_t>(tasks.size()), [&](int worker, int64_t at) {
    const bool few = AreFew(tasks[at].row_end - tasks[at].row_begin) && tasks[at].packed == nullptr;
    (few ? ForwardFewAvx2 : ForwardRowsAvx2)(tasks[at], scratch + worker * floats);
  });
  if (merges.empty()) return;
  RunTasks(pool, static_cast<int64_t>(merges.size()),
           [&](int worker, int64_t at) { MergeRowsAvx2(merges[at], scratch + worker * floats); });
}

// Units run in waves whose packed keys and values fit the budget together.
void ForwardFast(ThreadPool& pool, Isa isa, Workspace& workspace, const AttentionCall& call,
                 const AttentionResult& result) {
  const int64_t rows_per_task = RowsPerTask(call, pool.size());
  std::vector<Unit> units;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    for (int64_t kv_head = 0; kv_head < call.shape.kv_heads; ++kv_head) {
      units.push_back(UnitOf(isa, call, result, call.sequences[s], kv_head, rows_per_task));
    }
  }
  for (size_t begin = 0; begin < units.size();) {
    size_t end = begin;
    for (int64_t floats = 0; end < units.size() && floats + units[end].packed_floats <= kPackedFloats; ++end) {
      floats += units[end].packed_floats;
    }
    RunWave(pool, workspace, call, std::span(units).subspan(begin, end - begin));
    begin = end;
  }
}

// The kernels from the fastest on. A reason: why it does not take this sequence; empty: it does.
struct Entry {
  const char* name;
  std::string (*reason)(Isa isa, int64_t rows);
};
const Entry kEntries[] = {
    {"few rows avx2",
     [](Isa isa, int64_t rows) -> std::string {
       if (isa < Isa::kAvx2) return "the instruction set is not avx2";
       return AreFew(rows) ? "" : fmt::format("{} rows share a key head, it takes {} at most", rows, kFewRows);
     }},
    {"panels avx512",
     [](Isa isa, int64_t) -> std::string { return isa >= Isa::kAvx512 ? "" : "the instruction set is not avx512"; }},
    {"panels avx2",
     [](Isa isa, int64_t) -> std::string { return isa >= Isa::kAvx2 ? "" : "the instruction set is not avx2"; }},
    {"reference", [](Isa, int64_t) -> std::string { return ""; }},
};

}  // namespace

void AttentionForward(ThreadPool& pool, Isa isa, Workspace& workspace, const AttentionCall& call,
                      const AttentionResult& result) {
  CheckAttention(call, result);
  if (isa >= Isa::kAvx2) return ForwardFast(pool, isa, workspace, call, result);
  AttentionForwardReference(pool, call, result);
}

AttentionChoice ChooseAttention(Isa isa, const AttentionCall& call, const AttentionSequence& sequence) {
  AttentionChoice choice;
  const int64_t rows = sequence.query_count * GroupOf(call.shape);
  for (const Entry& entry : kEntries) {
    const std::string reason = entry.reason(isa, rows);
    choice.name = entry.name;
    if (reason.empty()) break;
    choice.declined.push_back(fmt::format("{}: {}", entry.name, reason));
  }
  return choice;
}

}  // namespace octavo::kernels
