// The forward pass for a few rows, the decode step: keys are lanes for the scores, features for the values, and stored
// keys and values go straight through registers, once. The order of every sum is that of the panels.
#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_rows_avx2.h"
#include "octavo/kernels/attention_running_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

struct Few {
  const ForwardTask* task;
  int64_t rows;
  int64_t query_stride;
  float* query;  // [kFewRows, query_stride], scaled; zeros in the rows that the task has not
  float* z;      // [kFewRows, 64]
  RunningRows part, total;
};

Few Layout(const ForwardTask& task, float* scratch) {
  const AttentionShape& shape = task.call->shape;
  Few f;
  f.task = &task;
  f.rows = task.row_end - task.row_begin;
  f.query_stride = RoundUp(shape.qk_dim, kPanel);
  const auto take = [&](int64_t floats) {
    float* at = scratch;
    scratch += RoundUp(floats, kPanel);
    return at;
  };
  f.query = take(kFewRows * f.query_stride);
  f.z = take(kFewRows * kKeyBlock);
  for (RunningRows* running : {&f.part, &f.total}) {
    running->m = take(kPanel);
    running->l = take(kPanel);
    running->stride = LocalStride(shape.v_dim);
    running->width = RoundUp(shape.v_dim, kPanel);
    running->o = take(kFewRows * running->stride);
  }
  return f;
}

// One block of stored vectors of one head: row j at data + j * stride.
struct StoredBlock {
  const uint8_t* data;
  int64_t stride;
  const float* scale;
  int64_t scale_stride;

  const uint8_t* Row(int64_t j) const { return data + j * stride; }
  float Scale(int64_t j) const { return scale[j * scale_stride]; }
};

StoredBlock BlockAt(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k0) {
  StoredBlock block{KvRow(side, sequence, head, k0), side.key_stride, nullptr, side.scale_key_stride};
  if (side.scale != nullptr) block.scale = KvScaleAt(side, sequence, head, k0);
  return block;
}

// Eight features of eight keys, one key per lane.
template <typename Loader>
OCTAVO_INLINE void LoadTransposed(const uint8_t* const* row, int64_t c, int64_t width, bool scaled, __m256 scale,
                                  __m256* t) {
  __m256 r[8], u[8];
  for (int i = 0; i < 8; ++i) r[i] = Loader::Load(row[i], c, width);
  for (int i = 0; i < 4; ++i) {
    u[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    u[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i + 0] = _mm256_shuffle_ps(u[4 * i], u[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(u[4 * i], u[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(u[4 * i + 1], u[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(u[4 * i + 1], u[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  if (!scaled) return;
  for (int i = 0; i < 8; ++i) t[i] = _mm256_mul_ps(t[i], scale);
}

// Scores of keys j0 … j0 + 8 G - 1 of the block for R rows; keys past `last` read the last one again (and are masked).
template <typename Loader, int R, int G>
void ScoreKeys(const Few& f, const StoredBlock& block, int64_t j0, int64_t last) {
  const int64_t width = f.task->call->shape.qk_dim;
  const bool scaled = block.scale != nullptr;
  const uint8_t* row[G][8];
  alignas(32) float scale[G][8];
  for (int g = 0; g < G; ++g) {
    for (int i = 0; i < 8; ++i) {
      const int64_t j = j0 + g * 8 + i < last ? j0 + g * 8 + i : last;
      row[g][i] = block.Row(j);
      scale[g][i] = scaled ? block.Scale(j) : 1.0f;
    }
  }
  for (int64_t leaf = 0; leaf < width; leaf += kDotLeaf) {
    const int64_t end = leaf + kDotLeaf < width ? leaf + kDotLeaf : width;
    __m256 chain[R][G];
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) chain[r][g] = _mm256_setzero_ps();
    }
    for (int64_t c = leaf; c < end; c += 8) {
      for (int g = 0; g < G; ++g) {
        __m256 t[8];
        LoadTransposed<Loader>(row[g], c, width, scaled, _mm256_load_ps(scale[g]), t);
        for (int i = 0; i < 8; ++i) {
          for (int r = 0; r < R; ++r) {
            chain[r][g] = Fma8(_mm256_broadcast_ss(f.query + r * f.query_stride + c + i), t[i], chain[r][g]);
          }
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < G; ++g) {
        float* at = f.z + r * kKeyBlock + j0 + g * 8;
        _mm256_store_ps(at, leaf == 0 ? chain[r][g] : _mm256_add_ps(_mm256_load_ps(at), chain[r][g]));
      }
    }
  }
}

// o = fma(o, factor, chain of p * v) for keys begin … end - 1 and 8 N features from c on.
template <typename Loader, int R, int N>
void AddValues(const Few& f, const StoredBlock& block, int64_t begin, int64_t end, int64_t c, const float* factor) {
  const int64_t width = f.task->call->shape.v_dim;
  const bool scaled = block.scale != nullptr;
  __m256 chain[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) chain[r][n] = _mm256_setzero_ps();
  }
  for (int64_t j = begin; j < end; ++j) {
    const uint8_t* row = block.Row(j);
    const __m256 scale = Fill8(scaled ? block.Scale(j) : 1.0f);
    for (int n = 0; n < N; ++n) {
      __m256 v = Loader::Load(row, c + 8 * n, width);
      if (scaled) v = _mm256_mul_ps(v, scale);
      for (int r = 0; r < R; ++r) {
        chain[r][n] = Fma8(_mm256_broadcast_ss(f.z + r * kKeyBlock + j), v, chain[r][n]);
      }
    }
  }
  for (int r = 0; r < R && r < f.rows; ++r) {
    for (int n = 0; n < N; ++n) {
      float* at = f.part.o + r * f.part.stride + c + 8 * n;
      _mm256_store_ps(at, Fma8(_mm256_load_ps(at), Fill8(factor[r]), chain[r][n]));
    }
  }
}

// Soft cap, mask, running maximum and sum of one row; z becomes p.
float SoftmaxRow(const Few& f, int64_t r, int64_t k0, int64_t begin, int64_t end) {
  const AttentionShape& shape = f.task->call->shape;
  float* z = f.z + r * kKeyBlock;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const int64_t position = f.task->sequence->position + (f.task->row_begin + r) / group;
  const KeyRange seen = VisibleKeys(shape, position, f.task->sequence->kv_length);
  const int64_t first = seen.begin - k0 > begin ? seen.begin - k0 : begin;
  const int64_t last = seen.end - k0 < end ? seen.end - k0 : end;
  if (shape.soft_cap > 0) {
    const __m256 cap = Fill8(shape.soft_cap), inverse = Fill8(1.0f / shape.soft_cap);
    for (int64_t j = begin / 8 * 8; j < end; j += 8) {
      _mm256_store_ps(z + j, _mm256_mul_ps(cap, Tanh8(_mm256_mul_ps(_mm256_load_ps(z + j), inverse))));
    }
  }
  for (int64_t j = 0; j < kKeyBlock; ++j) {
    if (j < first || j >= last) z[j] = -__builtin_inff();
  }
  __m256 top = _mm256_load_ps(z);
  for (int64_t j = 8; j < kKeyBlock; j += 8) top = _mm256_max_ps(_mm256_load_ps(z + j), top);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  const float before = f.part.m[r];
  const float now = Max(_mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four))), before);
  const float correction = Exp(before - now);
  Lanes16 sum;
  for (int64_t j = 0; j < kKeyBlock; j += 8) {
    const __m256 p = ExpNotPositive8(_mm256_sub_ps(_mm256_load_ps(z + j), Fill8(now)));
    _mm256_store_ps(z + j, p);
    sum.half[j / 8 % 2] = _mm256_add_ps(sum.half[j / 8 % 2], p);
  }
  f.part.m[r] = now;
  f.part.l[r] = Fma(f.part.l[r], correction, sum.Fold());
  return correction;
}

// One block of keys: scores, softmax, values. kKeys and kValues: how much runs side by side to hide the FMAs' latency.
template <int R>
void Block(const Few& f, const KeyRange& seen, int64_t k0) {
  constexpr int kKeys = R == 1 ? 4 : (R <= 4 ? 2 : 1), kValues = R == 1 ? 8 : (R == 2 ? 4 : (R == 4 ? 2 : 1));
  const AttentionCall& call = *f.task->call;
  const int64_t begin = seen.begin > k0 ? seen.begin - k0 : 0;
  const int64_t end = seen.end - k0 < kKeyBlock ? seen.end - k0 : kKeyBlock;
  const StoredBlock keys = BlockAt(call.key, *f.task->sequence, f.task->kv_head, k0);
  const StoredBlock values = BlockAt(call.value, *f.task->sequence, f.task->kv_head, k0);
  WithKvLoader(call.key, [&](auto loader) {
    for (int64_t j = begin / (8 * kKeys) * (8 * kKeys); j < end; j += 8 * kKeys) {
      ScoreKeys<decltype(loader), R, kKeys>(f, keys, j, end - 1);
    }
  });
  float factor[kFewRows];
  for (int64_t r = 0; r < f.rows; ++r) factor[r] = SoftmaxRow(f, r, k0, begin, end);
  WithKvLoader(call.value, [&](auto loader) {
    const int64_t width = RoundUp(call.shape.v_dim, 8);
    int64_t c = 0;
    for (; c + 8 * kValues <= width; c += 8 * kValues) {
      AddValues<decltype(loader), R, kValues>(f, values, begin, end, c, factor);
    }
    for (; c < width; c += 8) AddValues<decltype(loader), R, 1>(f, values, begin, end, c, factor);
  });
}

template <int R>
void SuperBlock(const Few& f, int64_t super, const KeyRange& seen) {
  ResetRows(f.part, f.rows);
  const int64_t first = super * kSuperBlock > seen.begin ? super * kSuperBlock : seen.begin;
  const int64_t last = (super + 1) * kSuperBlock < seen.end ? (super + 1) * kSuperBlock : seen.end;
  for (int64_t k0 = first / kKeyBlock * kKeyBlock; k0 < last; k0 += kKeyBlock) Block<R>(f, seen, k0);
}

void PackQueries(const Few& f) {
  const ForwardTask& task = *f.task;
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  std::memset(f.query, 0, static_cast<size_t>(kFewRows * f.query_stride) * sizeof(float));
  std::memset(f.z, 0, static_cast<size_t>(kFewRows * kKeyBlock) * sizeof(float));
  for (int64_t r = 0; r < f.rows; ++r) {
    const int64_t row = task.row_begin + r;
    LoadHead(task.call->query, task.sequence->query_begin + row / group, task.kv_head * group + row % group,
             shape.qk_dim, shape.scale, f.query + r * f.query_stride);
  }
}

}  // namespace

int64_t FewScratchAvx2(const AttentionShape& shape) {
  return kFewRows * (RoundUp(shape.qk_dim, kPanel) + kKeyBlock + 2 * LocalStride(shape.v_dim)) + 12 * kPanel;
}

void ForwardFewAvx2(const ForwardTask& task, float* scratch) {
  Few f = Layout(task, scratch);
  PackQueries(f);
  ResetRows(f.total, f.rows);
  const KeyRange seen = VisibleOfRows(task);
  for (int64_t super = task.super_begin; super < task.super_end; ++super) {
    if (task.partial != nullptr) {
      float* at = task.partial + (super - task.super_begin) * PartialFloats(task.call->shape, f.rows);
      f.part = PartialAt(task.call->shape, f.rows, at);
    }
    if (f.rows == 1) {
      SuperBlock<1>(f, super, seen);
    } else if (f.rows == 2) {
      SuperBlock<2>(f, super, seen);
    } else if (f.rows <= 4) {
      SuperBlock<4>(f, super, seen);
    } else {
      SuperBlock<8>(f, super, seen);
    }
    if (task.partial == nullptr) MergeRows(f.part, f.rows, f.total);
  }
  if (task.partial == nullptr) FinishRows(task, f.total);
}

}  // namespace octavo::kernels
