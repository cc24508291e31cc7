// The backward pass over pairs of a key block and a query block, 64 x 64: five products from the register tile, all
// with the queries as lanes or as the contracted side, so that nothing is transposed but the packed queries.
#include <cstring>

#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_mask_avx2.h"
#include "octavo/kernels/attention_rows_avx2.h"
#include "octavo/kernels/attention_tiles.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kPairStride = kQueryBlock + kPanel;  // of the 64 x 64 matrices of a pair of blocks

// The memory of one packed query head. Rows as in attention_impl.h; panels of 16 rows.
struct QuerySide {
  int64_t rows;
  int64_t key_stride, value_stride;
  float *query, *query_panels;  // scaled queries [rows, key_stride]; [rows / 16][qk_dim to 16][16]
  float *grad, *grad_panels;    // grad_out likewise, v_dim wide
  float *lse, *d;               // [rows]; lse is +inf for rows that weigh nothing
  float* grad_query;            // [rows, key_stride]
  PanelMask* mask;              // [rows / 16]
};

QuerySide QuerySideOf(const BackwardUnit& unit, int64_t head) {
  const AttentionShape& shape = unit.call->shape;
  QuerySide side;
  side.rows = QueryBlocks(unit.sequence()) * kQueryBlock;
  side.key_stride = LocalStride(shape.qk_dim);
  side.value_stride = LocalStride(shape.v_dim);
  float* at = unit.heads + (unit.one_head ? 0 : head) * QuerySideFloats(shape, unit.sequence());
  const auto take = [&](int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  side.query = take(side.rows * side.key_stride);
  side.query_panels = take(side.rows * RoundUp(shape.qk_dim, kPanel));
  side.grad = take(side.rows * side.value_stride);
  side.grad_panels = take(side.rows * RoundUp(shape.v_dim, kPanel));
  side.lse = take(side.rows);
  side.d = take(side.rows);
  side.grad_query = take(side.rows * side.key_stride);
  side.mask = reinterpret_cast<PanelMask*>(take(0));
  return side;
}

struct KeySide {
  float* packed;  // blocks as PackKvAvx2 leaves them
  float *grad_key, *grad_value;
};

KeySide KeySideOf(const BackwardUnit& unit) {
  const AttentionShape& shape = unit.call->shape;
  const int64_t blocks = KeyBlocks(unit.sequence());
  KeySide side;
  side.packed = unit.keys;
  side.grad_key = side.packed + blocks * PackedFloats(shape);
  side.grad_value = side.grad_key + blocks * kKeyBlock * LocalStride(shape.qk_dim);
  return side;
}

// A strip of a product's rows and the part of its contraction that is not all zeros.
struct Strip {
  int64_t row;
  int height;
  int64_t begin, end;
};

// The pair of blocks at hand. p and ds are [64 keys, kPairStride], queries along the row.
struct Pair {
  const AttentionShape* shape;
  const AttentionTiles* tiles;
  QuerySide q;
  KeySide k;
  int64_t key_stride, value_stride;
  int64_t k0, q0;  // first key, first row
  const float *key, *value;
  float *p, *ds;
  float *leaf_key, *leaf_value;
  int64_t begin[4], end[4];  // keys that each panel of queries sees, relative to k0
  Strip strips[kKeyBlock / 4];
  int strip_count;
};

Pair MakePair(const BackwardUnit& unit, int64_t head, float* scratch) {
  Pair pair;
  pair.shape = &unit.call->shape;
  pair.tiles = unit.tiles;
  pair.q = QuerySideOf(unit, head);
  pair.k = KeySideOf(unit);
  pair.key_stride = pair.q.key_stride;
  pair.value_stride = pair.q.value_stride;
  pair.p = scratch;
  pair.ds = pair.p + kKeyBlock * kPairStride;
  pair.leaf_key = pair.ds + kKeyBlock * kPairStride;
  pair.leaf_value = pair.leaf_key + kKeyBlock * pair.key_stride;
  pair.strip_count = 0;
  return pair;
}

void SetKeys(Pair& pair, int64_t block) {
  pair.k0 = block * kKeyBlock;
  pair.key = pair.k.packed + block * PackedFloats(*pair.shape);
  pair.value = pair.key + kKeyBlock * pair.key_stride;
}

// False when no query of the block sees a key of the block.
bool SetQueries(Pair& pair, int64_t block) {
  pair.q0 = block * kQueryBlock;
  bool any = false;
  for (int64_t panel = 0; panel < 4; ++panel) {
    const PanelMask& mask = pair.q.mask[block * 4 + panel];
    pair.begin[panel] = mask.BlockBegin(pair.k0);
    pair.end[panel] = mask.BlockEnd(pair.k0);
    any = any || pair.begin[panel] < pair.end[panel];
  }
  return any;
}

// Strips of keys, each with the panels of queries that see any of its keys.
void SetStrips(Pair& pair) {
  pair.strip_count = 0;
  for (int64_t row = 0; row < kKeyBlock;) {
    Strip strip{row, TileHeight(kKeyBlock - row, pair.tiles->height), 0, 0};
    int64_t first = 4, last = 0;
    for (int64_t panel = 0; panel < 4; ++panel) {
      if (pair.begin[panel] >= row + strip.height || pair.end[panel] <= row) continue;
      first = panel < first ? panel : first;
      last = panel + 1;
    }
    if (first < last) {
      strip.begin = first * kPanel;
      strip.end = last * kPanel;
    }
    pair.strips[pair.strip_count++] = strip;
    row += strip.height;
  }
}

// C[keys, 16 queries] = rows of keys or values times a panel of queries, in leaves of features.
void PanelProduct(const AttentionTiles& tiles, const float* rows, int64_t stride, const float* panel, int64_t width,
                  int64_t begin, int64_t end, float* c) {
  TileArgs tile{rows + begin * stride, stride, panel, kPanel, c + begin * kPairStride, kPairStride, 0, nullptr};
  for (int64_t at = 0; at < width; at += kDotLeaf) {
    tile.steps = width - at < kDotLeaf ? width - at : kDotLeaf;
    if (at == 0) {
      tiles.rows_store(end - begin, tile);
    } else {
      tiles.rows_add(end - begin, tile);
    }
    tile.a += kDotLeaf;
    tile.b += kDotLeaf * kPanel;
  }
}

// Scores and dp of eight queries and keys begin … end - 1 become p and ds, with a soft cap.
void WeighCapped8(const Pair& pair, const PanelMask& mask, int64_t row, int64_t half, int64_t begin, int64_t end) {
  const __m256 lse = _mm256_load_ps(pair.q.lse + pair.q0 + row), d = _mm256_load_ps(pair.q.d + pair.q0 + row);
  const __m256 cap = Fill8(pair.shape->soft_cap), inverse = Fill8(1.0f / pair.shape->soft_cap);
  for (int64_t j = begin; j < end; ++j) {
    float* p_at = pair.p + j * kPairStride + row;
    float* ds_at = pair.ds + j * kPairStride + row;
    const __m256 t = Tanh8(_mm256_mul_ps(_mm256_load_ps(p_at), inverse));
    const __m256 z = _mm256_mul_ps(cap, t), slope = _mm256_fnmadd_ps(t, t, Fill8(1.0f));
    const __m256 p = ExpNotPositive8(_mm256_sub_ps(z, lse));
    const __m256 ds = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_sub_ps(_mm256_load_ps(ds_at), d)), slope);
    const __m256 sees = mask.Sees(half, _mm256_set1_epi32(static_cast<int32_t>(pair.k0 + j)));
    _mm256_store_ps(p_at, _mm256_and_ps(p, sees));
    _mm256_store_ps(ds_at, _mm256_and_ps(ds, sees));
  }
}

void Weigh(const Pair& pair, int64_t panel) {
  const PanelMask& mask = pair.q.mask[pair.q0 / kPanel + panel];
  const int64_t row = panel * kPanel, begin = pair.begin[panel], end = pair.end[panel];
  if (pair.shape->soft_cap > 0) {
    for (int64_t half = 0; half < kPanel; half += 8) WeighCapped8(pair, mask, row + half, half, begin, end);
    return;
  }
  const bool whole = mask.Whole(pair.k0);
  pair.tiles->weigh({pair.p + row, pair.ds + row, kPairStride, pair.q.lse + pair.q0 + row, pair.q.d + pair.q0 + row,
                     begin, end, pair.k0, whole ? nullptr : mask.begin, whole ? nullptr : mask.end});
}

// p and ds of the pair; zeros where a panel sees nothing.
void Weights(const Pair& pair) {
  const AttentionShape& shape = *pair.shape;
  for (int64_t panel = 0; panel < 4; ++panel) {
    const int64_t row = pair.q0 + panel * kPanel, begin = pair.begin[panel], end = pair.end[panel];
    for (int64_t j = 0; j < kKeyBlock; ++j) {
      if (j >= begin && j < end) continue;
      std::memset(pair.p + j * kPairStride + panel * kPanel, 0, kPanel * sizeof(float));
      std::memset(pair.ds + j * kPairStride + panel * kPanel, 0, kPanel * sizeof(float));
    }
    if (begin >= end) continue;
    PanelProduct(*pair.tiles, pair.key, pair.key_stride, pair.q.query_panels + row * RoundUp(shape.qk_dim, kPanel),
                 shape.qk_dim, begin, end, pair.p + panel * kPanel);
    PanelProduct(*pair.tiles, pair.value, pair.value_stride, pair.q.grad_panels + row * RoundUp(shape.v_dim, kPanel),
                 shape.v_dim, begin, end, pair.ds + panel * kPanel);
    Weigh(pair, panel);
  }
}

// leaf[key, :] += weights[key, query] * rows[query, :], all columns.
void AddToLeaf(bool first, const Pair& pair, const float* weights, const float* rows, int64_t stride, int64_t width,
               float* leaf) {
  rows += pair.q0 * stride;
  for (int64_t c = 0; c < width; c += kPanel) {
    for (int i = 0; i < pair.strip_count; ++i) {
      const Strip& strip = pair.strips[i];
      if (!first && strip.begin == strip.end) continue;
      (first ? pair.tiles->rows_store : pair.tiles->rows_resume)(
          strip.height, {weights + strip.row * kPairStride + strip.begin, kPairStride, rows + strip.begin * stride + c,
                         stride, leaf + strip.row * stride + c, stride, strip.end - strip.begin, nullptr});
    }
  }
}

void AddKeysAndValues(const Pair& pair, bool first_of_leaf) {
  AddToLeaf(first_of_leaf, pair, pair.p, pair.q.grad, pair.value_stride, pair.shape->v_dim, pair.leaf_value);
  AddToLeaf(first_of_leaf, pair, pair.ds, pair.q.query, pair.key_stride, pair.shape->qk_dim, pair.leaf_key);
}

void AddQueries(const Pair& pair) {
  for (int64_t c = 0; c < pair.shape->qk_dim; c += kPanel) {
    for (int64_t panel = 0; panel < 4; ++panel) {
      const int64_t begin = pair.begin[panel], end = pair.end[panel];
      if (begin >= end) continue;
      pair.tiles->columns_add(
          kPanel, {pair.ds + begin * kPairStride + panel * kPanel, kPairStride, pair.key + begin * pair.key_stride + c,
                   pair.key_stride, pair.q.grad_query + (pair.q0 + panel * kPanel) * pair.key_stride + c,
                   pair.key_stride, end - begin, nullptr});
    }
  }
}

void AddMatrix(const float* from, int64_t stride, int64_t width, float* to) {
  for (int64_t row = 0; row < kKeyBlock; ++row) {
    for (int64_t c = row * stride; c < row * stride + RoundUp(width, kPanel); c += 8) {
      _mm256_store_ps(to + c, _mm256_add_ps(_mm256_load_ps(to + c), _mm256_load_ps(from + c)));
    }
  }
}

void EndLeaf(const Pair& pair) {
  AddMatrix(pair.leaf_key, pair.key_stride, pair.shape->qk_dim, pair.k.grad_key + pair.k0 * pair.key_stride);
  AddMatrix(pair.leaf_value, pair.value_stride, pair.shape->v_dim, pair.k.grad_value + pair.k0 * pair.value_stride);
}

void PackMasks(const BackwardUnit& unit, QuerySide& side, int64_t panel) {
  const AttentionSequence& sequence = unit.sequence();
  PanelMask& mask = side.mask[panel];
  // Rows before the first and after the last query repeat its mask: it then stays tight.
  const int64_t last = sequence.position + sequence.query_count - 1;
  for (int64_t lane = 0; lane < kPanel; ++lane) {
    int64_t position = FirstRow(sequence) + panel * kPanel + lane;
    position = position < sequence.position ? sequence.position : (position > last ? last : position);
    const KeyRange seen = VisibleKeys(unit.call->shape, position, sequence.kv_length);
    mask.begin[lane] = static_cast<int32_t>(seen.begin);
    mask.end[lane] = static_cast<int32_t>(seen.end);
  }
  mask.Close();
}

// One row: scaled query, grad_out, lse and D; zeros and +inf where there is no query.
void PackRow(const BackwardUnit& unit, QuerySide& side, int64_t head, int64_t row) {
  const AttentionShape& shape = unit.call->shape;
  const AttentionSequence& sequence = unit.sequence();
  const int64_t index = FirstRow(sequence) + row - sequence.position;
  float *query = side.query + row * side.key_stride, *grad = side.grad + row * side.value_stride;
  float* sum = side.grad_query + row * side.key_stride;
  std::memset(sum, 0, static_cast<size_t>(side.key_stride) * sizeof(float));
  if (index < 0 || index >= sequence.query_count) {
    std::memset(query, 0, static_cast<size_t>(side.key_stride) * sizeof(float));
    std::memset(grad, 0, static_cast<size_t>(side.value_stride) * sizeof(float));
    side.lse[row] = __builtin_inff();
    side.d[row] = 0;
    return;
  }
  const int64_t token = sequence.query_begin + index, global_head = unit.kv_head * unit.group() + head;
  LoadHead(unit.call->query, token, global_head, shape.qk_dim, shape.scale, query);
  LoadHead(unit.gradients->grad_out, token, global_head, shape.v_dim, 1.0f, grad);
  const ConstHeads& out = unit.gradients->out;
  Lanes16 lanes;
  WithElement8(out.dtype, [&](auto element) {
    using E = decltype(element);
    const auto* from =
        static_cast<const typename E::Type*>(out.data) + token * out.token_stride + global_head * out.head_stride;
    ForLanes(shape.v_dim, [&](int64_t c, auto io, int half) {
      lanes.half[half] = Fma8(_mm256_load_ps(grad + c), io.template Load<E>(from + c), lanes.half[half]);
    });
  });
  const float lse = unit.gradients->lse[token * shape.query_heads + global_head];
  side.lse[row] = lse == -__builtin_inff() ? __builtin_inff() : lse;
  side.d[row] = lanes.Fold();
}

}  // namespace

int64_t KeySideFloats(const AttentionShape& shape, const AttentionSequence& sequence) {
  return KeyBlocks(sequence) * 2 * PackedFloats(shape);
}

int64_t QuerySideFloats(const AttentionShape& shape, const AttentionSequence& sequence) {
  const int64_t rows = QueryBlocks(sequence) * kQueryBlock;
  const int64_t row = 3 * LocalStride(shape.qk_dim) + 2 * LocalStride(shape.v_dim);
  return RoundUp(rows * (row + 2) + rows / kPanel * static_cast<int64_t>(sizeof(PanelMask) / sizeof(float)), kPanel);
}

int64_t BackwardScratchAvx2(const AttentionShape& shape) { return 2 * kKeyBlock * kPairStride + PackedFloats(shape); }

void PackKeySideAvx2(const BackwardUnit& unit, int64_t begin, int64_t end) {
  const AttentionShape& shape = unit.call->shape;
  const KeySide side = KeySideOf(unit);
  for (int64_t block = begin; block < end; ++block) {
    PackKvAvx2(*unit.call, unit.sequence(), unit.kv_head, block, side.packed + block * PackedFloats(shape));
    const int64_t key = kKeyBlock * LocalStride(shape.qk_dim), value = kKeyBlock * LocalStride(shape.v_dim);
    std::memset(side.grad_key + block * key, 0, static_cast<size_t>(key) * sizeof(float));
    std::memset(side.grad_value + block * value, 0, static_cast<size_t>(value) * sizeof(float));
  }
}

void PackQuerySideAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end) {
  const AttentionShape& shape = unit.call->shape;
  QuerySide side = QuerySideOf(unit, head);
  for (int64_t panel = begin * 4; panel < end * 4; ++panel) {
    PackMasks(unit, side, panel);
    const int64_t row = panel * kPanel;
    for (int64_t lane = 0; lane < kPanel; ++lane) PackRow(unit, side, head, row + lane);
    TransposePanel(side.query + row * side.key_stride, side.key_stride, shape.qk_dim,
                   side.query_panels + row * RoundUp(shape.qk_dim, kPanel));
    TransposePanel(side.grad + row * side.value_stride, side.value_stride, shape.v_dim,
                   side.grad_panels + row * RoundUp(shape.v_dim, kPanel));
  }
}

void AddKeyBlocksAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end, bool queries,
                      float* scratch) {
  Pair pair = MakePair(unit, head, scratch);
  const int64_t first_position = FirstRow(unit.sequence()), blocks = QueryBlocks(unit.sequence());
  for (int64_t key_block = begin; key_block < end; ++key_block) {
    SetKeys(pair, key_block);
    int64_t leaf = -1;  // the leaf that the local sums belong to; -1: none
    for (int64_t block = 0; block < blocks; ++block) {
      if (!SetQueries(pair, block)) continue;
      const int64_t leaf_here = (first_position + pair.q0) / kQueryLeaf;
      if (leaf >= 0 && leaf != leaf_here) EndLeaf(pair);
      SetStrips(pair);
      Weights(pair);
      AddKeysAndValues(pair, leaf != leaf_here);
      leaf = leaf_here;
      if (queries) AddQueries(pair);
    }
    if (leaf >= 0) EndLeaf(pair);
  }
}

void AddQueryBlocksAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end, float* scratch) {
  Pair pair = MakePair(unit, head, scratch);
  for (int64_t key_block = 0; key_block < KeyBlocks(unit.sequence()); ++key_block) {
    SetKeys(pair, key_block);
    for (int64_t block = begin; block < end; ++block) {
      if (!SetQueries(pair, block)) continue;
      Weights(pair);
      AddQueries(pair);
    }
  }
}

void StoreGradKeysAvx2(const BackwardUnit& unit, int64_t begin, int64_t end) {
  const AttentionShape& shape = unit.call->shape;
  const AttentionSequence& sequence = unit.sequence();
  const KeySide side = KeySideOf(unit);
  for (int64_t k = begin * kKeyBlock; k < end * kKeyBlock && k < sequence.kv_length; ++k) {
    const int64_t token = sequence.kv_begin + k;
    StoreHead(unit.gradients->grad_key, token, unit.kv_head, shape.qk_dim, Fill8(1.0f),
              side.grad_key + k * LocalStride(shape.qk_dim));
    StoreHead(unit.gradients->grad_value, token, unit.kv_head, shape.v_dim, Fill8(1.0f),
              side.grad_value + k * LocalStride(shape.v_dim));
  }
}

void StoreGradQueriesAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end) {
  const AttentionShape& shape = unit.call->shape;
  const AttentionSequence& sequence = unit.sequence();
  const QuerySide side = QuerySideOf(unit, head);
  for (int64_t row = begin * kQueryBlock; row < end * kQueryBlock; ++row) {
    const int64_t index = FirstRow(sequence) + row - sequence.position;
    if (index < 0 || index >= sequence.query_count) continue;
    StoreHead(unit.gradients->grad_query, sequence.query_begin + index, unit.kv_head * unit.group() + head,
              shape.qk_dim, Fill8(shape.scale), side.grad_query + row * side.key_stride);
  }
}

void StoreGradSinkAvx2(const BackwardUnit& unit, int64_t head) {
  const AttentionShape& shape = unit.call->shape;
  if (unit.gradients->grad_sinks == nullptr) return;
  const AttentionSequence& sequence = unit.sequence();
  const QuerySide side = QuerySideOf(unit, head);
  const int64_t global_head = unit.kv_head * unit.group() + head;
  float sum = 0, leaf = 0;
  for (int64_t i = 0; i < sequence.query_count; ++i) {
    const int64_t position = sequence.position + i, row = position - FirstRow(sequence);
    leaf = Fma(-Exp(shape.sinks[global_head] - side.lse[row]), side.d[row], leaf);
    if ((position + 1) % kQueryLeaf == 0 || i + 1 == sequence.query_count) {
      sum = sum + leaf;
      leaf = 0;
    }
  }
  unit.gradients->grad_sinks[unit.sequence_index * shape.query_heads + global_head] = sum + 0.0f;
}

}  // namespace octavo::kernels
