#include "octavo/kernels/matmul_f32.h"

#include <numeric>

#include "octavo/base/error.h"
#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/weight_only.h"

namespace octavo::kernels {
namespace {

void CheckSource(const FloatSource& s, const char* name) {
  if (s.rows < 0 || s.cols < 0) ThrowUsage("MatMulF32: {} is [{}, {}]", name, s.rows, s.cols);
  if (s.rows == 0 || s.cols == 0) return;
  if (s.data == nullptr) ThrowUsage("MatMulF32: {} is [{}, {}] but has no data", name, s.rows, s.cols);
  if ((s.stored == Stored::kByte || s.stored == Stored::kNibble) && s.table == nullptr) {
    ThrowUsage("MatMulF32: {} holds codes but has no table of their values", name);
  }
  const TileScales& t = s.scales;
  if (t.scale == nullptr && t.zero_point != nullptr) ThrowUsage("MatMulF32: {} has zero points without scales", name);
  if (t.scale != nullptr && (t.tile_rows < 1 || t.tile_cols < 1 || t.row0 < 0 || t.col0 < 0)) {
    ThrowUsage("MatMulF32: {} has scale tiles of {} x {} starting at ({}, {})", name, t.tile_rows, t.tile_cols, t.row0,
               t.col0);
  }
}

void Check(const MatMulF32Args& args) {
  CheckSource(args.a, "a");
  if (args.packed_b == nullptr) CheckSource(args.b, "b");
  const int64_t k = args.packed_b != nullptr ? args.packed_b->depth() : args.b.rows;
  const int64_t n = args.packed_b != nullptr ? args.packed_b->cols() : args.b.cols;
  const FloatResult& c = args.c;
  if (args.a.cols != k) {
    ThrowUsage("MatMulF32: a [{}, {}] contracts {}, b [{}, {}] wants {}", args.a.rows, args.a.cols, args.a.cols, k, n,
               k);
  }
  if (c.rows != args.a.rows || c.cols != n) {
    ThrowUsage("MatMulF32: c is [{}, {}], expected [{}, {}]", c.rows, c.cols, args.a.rows, n);
  }
  if (c.rows > 0 && c.cols > 0 && c.data == nullptr) ThrowUsage("MatMulF32: c has no data");
  if (c.stored != Stored::kF32 && c.stored != Stored::kBF16 && c.stored != Stored::kF16) {
    ThrowUsage("MatMulF32: c must be stored as f32, bf16 or f16");
  }
}

// The kernels, best first. Each says why it declines, or nothing when it takes the product.
enum class Which { kPackedStream, kStream, kBlocked, kReference };

struct Entry {
  Which which;
  std::string_view name;
  std::string_view (*decline)(Isa, const MatMulF32Args&);
};

std::string_view DeclinePackedStream(Isa isa, const MatMulF32Args& args) {
  if (isa < Isa::kAvx2) return "needs avx2";
  if (args.packed_b == nullptr) return "B is not packed";
  if (args.c.rows > internal::kStreamRows) return "more than 8 rows";
  if (args.a.cols == 0) return "K is 0";
  return {};
}

std::string_view DeclineStream(Isa isa, const MatMulF32Args& args) {
  if (isa < Isa::kAvx2) return "needs avx2";
  if (args.c.rows > internal::kStreamRows) return "more than 8 rows";
  if (args.a.cols == 0) return "K is 0";
  if (args.packed_b != nullptr) return "B is packed";
  if (args.b.stored != Stored::kF32 || args.b.scales.scale != nullptr) return "B is not plain f32";
  if (args.b.row_stride != 1 && args.b.col_stride != 1) return "B has no unit stride";
  return {};
}

std::string_view DeclineBlocked(Isa isa, const MatMulF32Args& args) {
  if (isa < Isa::kAvx2) return "needs avx2";
  if (args.a.cols == 0) return "K is 0";
  return {};
}

std::string_view DeclineWide(Isa isa, const MatMulF32Args& args) {
  return isa < Isa::kAvx512 ? "needs avx512" : DeclineBlocked(isa, args);
}

std::string_view DeclineWidePackedStream(Isa isa, const MatMulF32Args& args) {
  return isa < Isa::kAvx512 ? "needs avx512" : DeclinePackedStream(isa, args);
}

constexpr Entry kEntries[] = {
    {Which::kPackedStream, "f32 packed stream avx512 (M <= 8)", &DeclineWidePackedStream},
    {Which::kPackedStream, "f32 packed stream avx2 (M <= 8)", &DeclinePackedStream},
    {Which::kStream, "f32 stream avx2 (M <= 8)", &DeclineStream},
    {Which::kBlocked, "f32 blocked 14x32 avx512", &DeclineWide},
    {Which::kBlocked, "f32 blocked 6x16 avx2", &DeclineBlocked},
    {Which::kReference, "f32 reference", [](Isa, const MatMulF32Args&) -> std::string_view { return {}; }},
};

Which Select(Isa isa, const MatMulF32Args& args) {
  for (const Entry& entry : kEntries) {
    if (entry.decline(isa, args).empty()) return entry.which;
  }
  return Which::kReference;
}

// Rows that no group owns: epilogue of nothing.
void ZeroRows(ThreadPool& pool, const FloatResult& c) {
  pool.ParallelFor(c.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t n = 0; n < c.cols; ++n) {
        const int64_t at = r * c.row_stride + n * c.col_stride;
        if (c.stored == Stored::kF32) {
          static_cast<float*>(c.data)[at] = 0;
        } else {
          static_cast<uint16_t*>(c.data)[at] = 0;
        }
      }
    }
  });
}

int64_t TotalRows(std::span<const int64_t> group_rows, int64_t rows, const char* what) {
  for (size_t g = 0; g < group_rows.size(); ++g) {
    if (group_rows[g] < 0) ThrowUsage("{}: group {} has {} rows", what, g, group_rows[g]);
  }
  const int64_t total = std::accumulate(group_rows.begin(), group_rows.end(), int64_t{0});
  if (total > rows) ThrowUsage("{}: the groups have {} rows together, a has {}", what, total, rows);
  return total;
}

}  // namespace

internal::FinishF32 MakeFinish(const EpilogueF32& epilogue, const FloatResult& c, int64_t row, int64_t col) {
  const auto at = [](const Vector& v, int64_t i) { return v.data == nullptr ? nullptr : v.data + i * v.stride; };
  internal::FinishF32 finish;
  finish.row_scale = at(epilogue.row_scale, row), finish.row_scale_stride = epilogue.row_scale.stride;
  finish.col_scale = at(epilogue.col_scale, col), finish.col_scale_stride = epilogue.col_scale.stride;
  finish.bias = at(epilogue.bias, col), finish.bias_stride = epilogue.bias.stride;
  finish.accumulate = epilogue.accumulate;
  finish.stored = c.stored;
  finish.row_stride = c.row_stride, finish.col_stride = c.col_stride;
  const int64_t bytes = c.stored == Stored::kF32 ? 4 : 2;
  finish.c = static_cast<char*>(c.data) + (row * c.row_stride + col * c.col_stride) * bytes;
  return finish;
}

KernelChoice ChooseMatMulF32(Isa isa, const MatMulF32Args& args) {
  KernelChoice choice;
  for (const Entry& entry : kEntries) {
    const std::string_view reason = entry.decline(isa, args);
    if (reason.empty()) {
      choice.name = entry.name;
      break;
    }
    choice.declined.push_back(fmt::format("{}: {}", entry.name, reason));
  }
  return choice;
}

void MatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, const MatMulF32Args& args) {
  MatMulF32(pool, isa, workspace, std::span(&args, 1));
}

void MatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, std::span<const MatMulF32Args> many) {
  for (const MatMulF32Args& args : many) Check(args);
  std::vector<MatMulF32Args> blocked;
  for (const MatMulF32Args& args : many) {
    if (args.c.rows == 0 || args.c.cols == 0) continue;
    switch (Select(isa, args)) {
      case Which::kPackedStream:
        MatMulF32PackedStream(pool, isa, workspace, args);
        break;
      case Which::kStream:
        MatMulF32Stream(pool, workspace, args);
        break;
      case Which::kBlocked:
        blocked.push_back(args);
        break;
      case Which::kReference:
        MatMulF32Reference(pool, args);
    }
  }
  if (!blocked.empty()) MatMulF32Blocked(pool, isa, workspace, blocked);
}

void GroupedMatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, const GroupedF32Args& args) {
  const size_t groups = args.group_rows.size();
  const size_t weights = args.packed_b.empty() ? args.b.size() : args.packed_b.size();
  if (weights != groups) ThrowUsage("GroupedMatMulF32: {} groups but {} of b", groups, weights);
  if (!args.col_scale.empty() && args.col_scale.size() != groups) {
    ThrowUsage("GroupedMatMulF32: {} groups but {} column scales", groups, args.col_scale.size());
  }
  if (args.c.rows != args.a.rows) ThrowUsage("GroupedMatMulF32: a has {} rows, c {}", args.a.rows, args.c.rows);
  const int64_t total = TotalRows(args.group_rows, args.a.rows, "GroupedMatMulF32");
  std::vector<MatMulF32Args> many(groups);
  int64_t begin = 0;
  for (size_t g = 0; g < groups; ++g) {
    const int64_t end = begin + args.group_rows[g];
    many[g].a = args.a.RowRange(begin, end);
    if (args.packed_b.empty()) {
      many[g].b = args.b[g];
    } else {
      many[g].packed_b = args.packed_b[g];
    }
    many[g].c = args.c.RowRange(begin, end);
    many[g].epilogue.row_scale = args.row_scale;
    if (args.row_scale.data != nullptr) many[g].epilogue.row_scale.data += begin * args.row_scale.stride;
    if (!args.col_scale.empty()) many[g].epilogue.col_scale = args.col_scale[g];
    many[g].epilogue.accumulate = args.accumulate;
    begin = end;
  }
  MatMulF32(pool, isa, workspace, many);
  if (!args.accumulate) ZeroRows(pool, args.c.RowRange(total, args.c.rows));
}

void GroupedGradF32(ThreadPool& pool, Isa isa, Workspace& workspace, const GroupedGradF32Args& args) {
  const size_t groups = args.group_rows.size();
  if (args.c.size() != groups) ThrowUsage("GroupedGradF32: {} groups but {} of c", groups, args.c.size());
  if (args.a.rows != args.grad.rows) ThrowUsage("GroupedGradF32: a has {} rows, grad {}", args.a.rows, args.grad.rows);
  TotalRows(args.group_rows, args.a.rows, "GroupedGradF32");
  std::vector<MatMulF32Args> many(groups);
  int64_t begin = 0;
  for (size_t g = 0; g < groups; ++g) {
    const int64_t end = begin + args.group_rows[g];
    many[g].a = args.a.RowRange(begin, end).Transposed();
    many[g].b = args.grad.RowRange(begin, end);
    many[g].c = args.c[g];
    many[g].epilogue.accumulate = args.accumulate;
    begin = end;
  }
  MatMulF32(pool, isa, workspace, many);
}

}  // namespace octavo::kernels
