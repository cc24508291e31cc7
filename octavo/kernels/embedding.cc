#include "octavo/kernels/embedding.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/elementwise_rows.h"
#include "octavo/kernels/embedding_rows.h"

namespace octavo::kernels {
namespace {

void CheckIds(const char* op, const int32_t* id, int64_t count, int64_t rows) {
  CheckPresent(op, "id", id, count);
  for (int64_t t = 0; t < count; ++t) {
    if (id[t] < 0 || id[t] >= rows) {
      ThrowUsage("{}: token {} has id {}, the table has rows 0 … {}", op, t, id[t], rows - 1);
    }
  }
}

// Tokens by (id, token), and the runs that share an id and a leaf.
struct Sorted {
  std::vector<int32_t> token;
  std::vector<ScatterLeaf> leaves;
};

Sorted SortTokens(const ScatterArgs& args) {
  const int64_t tokens = args.grad_y.rows;
  std::vector<uint64_t> keys(tokens);  // all different, so any sort is stable
  for (int64_t t = 0; t < tokens; ++t) {
    keys[t] = static_cast<uint64_t>(static_cast<uint32_t>(args.id[t])) << 32 | static_cast<uint32_t>(t);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> leaf_of(tokens);  // a number that grows with each leaf of each sequence
  int32_t next = 0;
  const auto number = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) leaf_of[t] = next + static_cast<int32_t>((t - begin) / kTokenLeaf);
    next += static_cast<int32_t>((end - begin + kTokenLeaf - 1) / kTokenLeaf);
  };
  if (args.sequences.count == 0) number(0, tokens);
  for (int64_t s = 0; s < args.sequences.count; ++s) {
    number(args.sequences.begin[s], args.sequences.begin[s + 1]);
  }
  Sorted out;
  out.token.resize(tokens);
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t id = static_cast<int32_t>(keys[i] >> 32), t = static_cast<int32_t>(keys[i] & 0xffffffffu);
    out.token[i] = t;
    const bool same = i > 0 && out.leaves.back().id == id && leaf_of[out.token[i - 1]] == leaf_of[t];
    if (!same) out.leaves.push_back({i, i, id});
    out.leaves.back().end = i + 1;
  }
  return out;
}

}  // namespace

void ScatterLeavesRef(const ConstRows& grad_y, const int32_t* token, const ScatterLeaf* leaf, int64_t leaves, float*,
                      const MutRows& grad_table) {
  WithElement(grad_y.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t l = 0; l < leaves; ++l) {
      float* row = RowPointer<F32Element>(grad_table, leaf[l].id);
      for (int64_t c = 0; c < grad_y.cols; ++c) {
        float chain = 0;
        for (int64_t i = leaf[l].begin; i < leaf[l].end; ++i) chain += E::Load(RowPointer<E>(grad_y, token[i])[c]);
        row[c] += chain;
      }
    }
  });
}

void GatherRows(ThreadPool& pool, Isa isa, const GatherArgs& args) {
  constexpr const char* kOp = "GatherRows";
  CheckRows(kOp, "table", args.table);
  CheckRows(kOp, "out", args.out);
  if (args.table.cols != args.out.cols) {
    ThrowUsage("{}: the table has {} columns, the output {}", kOp, args.table.cols, args.out.cols);
  }
  CheckIds(kOp, args.id, args.out.rows, args.table.rows);
  const int64_t cols = args.out.cols;
  const size_t bytes = static_cast<size_t>(cols * SizeOf(args.out.dtype));
  pool.ParallelFor(cols == 0 ? 0 : args.out.rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const ConstRows from = PartOf(args.table, {args.id[t], args.id[t] + 1, 0, cols});
      const MutRows to = PartOf(args.out, {t, t + 1, 0, cols});
      if (from.dtype == to.dtype) {
        std::memcpy(to.data, from.data, bytes);
      } else {
        isa >= Isa::kAvx2 ? CastAvx2(from, to) : CastRef(from, to);
      }
    }
  });
}

void ScatterAddRows(ThreadPool& pool, Isa isa, const ScatterArgs& args) {
  constexpr const char* kOp = "ScatterAddRows";
  const int64_t cols = args.grad_y.cols;
  CheckRows(kOp, "grad_y", args.grad_y);
  CheckRows(kOp, "grad_table", args.grad_table);
  if (args.grad_table.dtype != DType::kF32) ThrowUsage("{}: grad_table is bf16, expected f32", kOp);
  if (args.grad_table.cols != cols) {
    ThrowUsage("{}: the table has {} columns, grad_y {}", kOp, args.grad_table.cols, cols);
  }
  if (args.grad_y.rows > INT32_MAX) ThrowUsage("{}: {} tokens are too many for one call", kOp, args.grad_y.rows);
  CheckIds(kOp, args.id, args.grad_y.rows, args.grad_table.rows);
  CheckSequences(kOp, args.sequences, args.grad_y.rows);
  const Sorted sorted = SortTokens(args);
  const int64_t leaves = static_cast<int64_t>(sorted.leaves.size());
  // By columns: however often one id occurs, the work divides evenly, and every sum stays with one thread.
  pool.ParallelFor(cols, std::max<int64_t>(64, 16384 / std::max<int64_t>(1, args.grad_y.rows)),
                   [&](int64_t begin, int64_t end) {
                     std::vector<float> sum(end - begin);
                     const ConstRows grad_y = PartOf(args.grad_y, {0, args.grad_y.rows, begin, end});
                     const MutRows table = PartOf(args.grad_table, {0, args.grad_table.rows, begin, end});
                     const auto scatter = isa >= Isa::kAvx2 ? ScatterLeavesAvx2 : ScatterLeavesRef;
                     scatter(grad_y, sorted.token.data(), sorted.leaves.data(), leaves, sum.data(), table);
                   });
}

}  // namespace octavo::kernels
