// The forward pass on panels of 16 rows: rows are lanes, so maxima, sums and corrections need no horizontal step.
#include <cstring>

#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_mask_avx2.h"
#include "octavo/kernels/attention_rows_avx2.h"
#include "octavo/kernels/attention_running_avx2.h"
#include "octavo/kernels/attention_tiles.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

struct Panels {
  const ForwardTask* task;
  int64_t rows, count;  // rows of the task, panels
  int64_t key_stride, value_stride;
  const float *key, *value;  // of the block at hand
  float *query, *block, *z, *staging;
  RunningRows part, total;
  PanelMask mask[kRowBlock / kPanel];
};

int64_t RowsOfPanel(const Panels& p, int64_t panel) {
  const int64_t left = p.rows - panel * kPanel;
  return left < kPanel ? left : kPanel;
}

Panels Layout(const ForwardTask& task, float* scratch) {
  const AttentionShape& shape = task.call->shape;
  Panels p;
  p.task = &task;
  p.rows = task.row_end - task.row_begin;
  p.count = (p.rows + kPanel - 1) / kPanel;
  p.key_stride = LocalStride(shape.qk_dim);
  p.value_stride = LocalStride(shape.v_dim);
  const auto take = [&](int64_t floats) {
    float* at = scratch;
    scratch += RoundUp(floats, kPanel);
    return at;
  };
  p.query = take(kRowBlock * RoundUp(shape.qk_dim, kPanel));
  p.block = take(PackedFloats(shape));
  p.z = take(kKeyBlock * kPanel);
  p.staging = take(kPanel * p.key_stride);
  for (RunningRows* running : {&p.part, &p.total}) {
    running->m = take(kRowBlock);
    running->l = take(kRowBlock);
    running->stride = p.value_stride;
    running->width = RoundUp(shape.v_dim, kPanel);
    running->o = take(kRowBlock * p.value_stride);
  }
  return p;
}

void SetMask(const Panels& p, int64_t panel, PanelMask& mask) {
  const ForwardTask& task = *p.task;
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads, rows = RowsOfPanel(p, panel);
  for (int64_t lane = 0; lane < kPanel; ++lane) {
    const int64_t row = task.row_begin + panel * kPanel + (lane < rows ? lane : rows - 1);
    const KeyRange seen = VisibleKeys(shape, task.sequence->position + row / group, task.sequence->kv_length);
    mask.begin[lane] = static_cast<int32_t>(seen.begin);
    mask.end[lane] = static_cast<int32_t>(seen.end);
  }
  mask.Close();
}

void PackQueries(const Panels& p) {
  const ForwardTask& task = *p.task;
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t panel = 0; panel < p.count; ++panel) {
    const int64_t rows = RowsOfPanel(p, panel);
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      float* to = p.staging + lane * p.key_stride;
      if (lane < rows) {
        const int64_t row = task.row_begin + panel * kPanel + lane;
        LoadHead(task.call->query, task.sequence->query_begin + row / group, task.kv_head * group + row % group,
                 shape.qk_dim, shape.scale, to);
      } else {
        std::memset(to, 0, static_cast<size_t>(p.key_stride) * sizeof(float));
      }
    }
    TransposePanel(p.staging, p.key_stride, shape.qk_dim, p.query + panel * kPanel * RoundUp(shape.qk_dim, kPanel));
  }
}

// z[j, lane] for keys begin … end - 1 of the block.
void Scores(const Panels& p, const float* query, int64_t begin, int64_t end) {
  const AttentionShape& shape = p.task->call->shape;
  const AttentionTiles& tiles = *p.task->tiles;
  TileArgs tile{p.key + begin * p.key_stride, p.key_stride, query, kPanel, p.z + begin * kPanel, kPanel, 0, nullptr};
  for (int64_t c = 0; c < shape.qk_dim; c += kDotLeaf) {
    tile.steps = shape.qk_dim - c < kDotLeaf ? shape.qk_dim - c : kDotLeaf;
    if (c == 0) {
      tiles.rows_store(end - begin, tile);
    } else {
      tiles.rows_add(end - begin, tile);
    }
    tile.a += kDotLeaf;
    tile.b += kDotLeaf * kPanel;
  }
  if (shape.soft_cap > 0) {
    const __m256 cap = Fill8(shape.soft_cap), inverse = Fill8(1.0f / shape.soft_cap);
    for (float* at = p.z + begin * kPanel; at < p.z + end * kPanel; at += 8) {
      _mm256_store_ps(at, _mm256_mul_ps(cap, Tanh8(_mm256_mul_ps(_mm256_load_ps(at), inverse))));
    }
  }
}

// -inf where a lane does not see the key, and in the rows outside begin … end.
void MaskScores(const Panels& p, const PanelMask& mask, int64_t k0, int64_t begin, int64_t end) {
  const __m256 minus_inf = Fill8(-__builtin_inff());
  for (int64_t j = 0; j < kKeyBlock; ++j) {
    const __m256i k = _mm256_set1_epi32(static_cast<int32_t>(k0 + j));
    for (int64_t half = 0; half < kPanel; half += 8) {
      float* at = p.z + j * kPanel + half;
      if (j < begin || j >= end) {
        _mm256_store_ps(at, minus_inf);
        continue;
      }
      _mm256_store_ps(at, Select8(mask.Sees(half, k), _mm256_load_ps(at), minus_inf));
    }
  }
}

void PanelBlock(const Panels& p, int64_t panel, int64_t k0) {
  const PanelMask& mask = p.mask[panel];
  const int64_t begin = mask.BlockBegin(k0), end = mask.BlockEnd(k0);
  if (begin >= end) return;
  const AttentionShape& shape = p.task->call->shape;
  Scores(p, p.query + panel * kPanel * RoundUp(shape.qk_dim, kPanel), begin, end);
  if (!mask.Whole(k0)) MaskScores(p, mask, k0, begin, end);
  alignas(32) float factor[kPanel];
  const int64_t row = panel * kPanel;
  p.task->tiles->softmax(p.z, p.part.m + row, p.part.l + row, factor);
  for (int64_t c = 0; c < p.part.width; c += kPanel) {
    p.task->tiles->columns_rescale(RowsOfPanel(p, panel),
                                   {p.z + begin * kPanel, kPanel, p.value + begin * p.value_stride + c, p.value_stride,
                                    p.part.o + row * p.value_stride + c, p.value_stride, end - begin, factor});
  }
}

// The running softmax of all rows over one super-block.
void SuperBlock(Panels& p, int64_t super, const KeyRange& seen) {
  const ForwardTask& task = *p.task;
  const int64_t floats = PackedFloats(task.call->shape);
  ResetRows(p.part, p.rows);
  const int64_t first = super * kSuperBlock > seen.begin ? super * kSuperBlock : seen.begin;
  const int64_t last = (super + 1) * kSuperBlock < seen.end ? (super + 1) * kSuperBlock : seen.end;
  for (int64_t k0 = first / kKeyBlock * kKeyBlock; k0 < last; k0 += kKeyBlock) {
    if (task.packed == nullptr) PackKvAvx2(*task.call, *task.sequence, task.kv_head, k0 / kKeyBlock, p.block);
    p.key = task.packed == nullptr ? p.block : task.packed + k0 / kKeyBlock * floats;
    p.value = p.key + kKeyBlock * p.key_stride;
    for (int64_t panel = 0; panel < p.count; ++panel) PanelBlock(p, panel, k0);
  }
}

}  // namespace

void PackKvAvx2(const AttentionCall& call, const AttentionSequence& sequence, int64_t kv_head, int64_t block,
                float* packed) {
  const AttentionShape& shape = call.shape;
  const int64_t k0 = block * kKeyBlock, key_stride = LocalStride(shape.qk_dim), value_stride = LocalStride(shape.v_dim);
  const int64_t keys = sequence.kv_length - k0 < kKeyBlock ? sequence.kv_length - k0 : kKeyBlock;
  LoadKvBlock(call.key, sequence, kv_head, k0, keys, kKeyBlock, shape.qk_dim, packed, key_stride);
  packed += kKeyBlock * key_stride;
  LoadKvBlock(call.value, sequence, kv_head, k0, keys, kKeyBlock, shape.v_dim, packed, value_stride);
}

int64_t ForwardScratchAvx2(const AttentionShape& shape) {
  const int64_t key = LocalStride(shape.qk_dim), value = LocalStride(shape.v_dim);
  return kRowBlock * (key + 2 * value + 4) + kKeyBlock * (key + value + kPanel) + kPanel * key + 16 * kPanel;
}

void ForwardRowsAvx2(const ForwardTask& task, float* scratch) {
  Panels p = Layout(task, scratch);
  for (int64_t panel = 0; panel < p.count; ++panel) SetMask(p, panel, p.mask[panel]);
  PackQueries(p);
  ResetRows(p.total, p.rows);
  const KeyRange seen = VisibleOfRows(task);
  for (int64_t super = task.super_begin; super < task.super_end; ++super) {
    if (task.partial != nullptr) {
      float* at = task.partial + (super - task.super_begin) * PartialFloats(task.call->shape, p.rows);
      p.part = PartialAt(task.call->shape, p.rows, at);
    }
    SuperBlock(p, super, seen);
    if (task.partial == nullptr) MergeRows(p.part, p.rows, p.total);
  }
  if (task.partial == nullptr) FinishRows(task, p.total);
}

void MergeRowsAvx2(const ForwardTask& task, float* scratch) {
  Panels p = Layout(task, scratch);
  ResetRows(p.total, p.rows);
  for (int64_t super = task.super_begin; super < task.super_end; ++super) {
    float* at = task.partial + (super - task.super_begin) * PartialFloats(task.call->shape, p.rows);
    MergeRows(PartialAt(task.call->shape, p.rows, at), p.rows, p.total);
  }
  FinishRows(task, p.total);
}

}  // namespace octavo::kernels
