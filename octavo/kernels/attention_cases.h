// Problems for the tests of attention: random queries, keys and values in any stored form, contiguous or paged, and an
// oracle in double. Not for computing.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/attention.h"
#include "octavo/kernels/attention_ref.h"
#include "octavo/kernels/sample_rows.h"
#include "octavo/numerics/half.h"
#include "octavo/numerics/pack.h"

namespace octavo::kernels {

// Stored keys or values: [tokens, heads, width] in a format, with scales where the format needs them.
struct KvStore {
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  KvSide side;
};

struct KvForm {
  Format format = Format::kF32;
  bool packed = false;
  bool scale_per_head = true;  // else one scale per token
};

inline bool IsFloatForm(const KvForm& form) {
  return form.format == Format::kF32 || form.format == Format::kBF16 || form.format == Format::kF16;
}

inline int64_t BytesOfVector(const KvForm& form, int64_t width) {
  if (form.format == Format::kF32) return width * 4;
  if (form.format == Format::kBF16 || form.format == Format::kF16) return width * 2;
  return form.packed ? (width + 1) / 2 : width;
}

inline void StoreVector(const KvForm& form, const float* values, int64_t width, float scale, uint8_t* to) {
  std::vector<uint8_t> codes(width);
  for (int64_t c = 0; c < width; ++c) {
    const uint16_t half = form.format == Format::kBF16 ? F32ToBF16(values[c]) : F32ToF16(values[c]);
    if (form.format == Format::kF32) std::memcpy(to + c * 4, &values[c], 4);
    if (form.format == Format::kBF16 || form.format == Format::kF16) std::memcpy(to + c * 2, &half, 2);
    if (!IsFloatForm(form)) codes[c] = Encode(form.format, values[c] / scale, OverflowPolicy::kSaturate) & 0xff;
  }
  if (IsFloatForm(form)) return;
  if (form.packed) {
    PackCodes(codes, 4, std::span(to, static_cast<size_t>((width + 1) / 2)));
  } else {
    std::memcpy(to, codes.data(), codes.size());
  }
}

// Stores values[tokens, heads, width]; token t goes to slot slot_of[t]. Slots that no token uses hold NaN, or the codes
// of large numbers: whoever reads them shows it.
inline KvStore StoreKv(const std::vector<float>& values, const std::vector<int64_t>& slot_of, int64_t slots,
                       int64_t heads, int64_t width, const KvForm& form) {
  KvStore store;
  const int64_t vector_bytes = BytesOfVector(form, width);
  store.side.format = form.format;
  store.side.packed = form.packed;
  store.side.head_stride = vector_bytes + (form.format == Format::kF32 ? 8 : 2);
  store.side.key_stride = heads * store.side.head_stride + 4;
  store.side.page_stride = kKeyBlock * store.side.key_stride;
  store.bytes.assign(slots * store.side.key_stride, form.format == Format::kInt8 || form.packed ? 0x77 : 0xff);
  const int64_t scales_per_token = form.scale_per_head ? heads : 1;
  if (!IsFloatForm(form)) store.scales.assign(slots * scales_per_token, std::numeric_limits<float>::quiet_NaN());
  const float bound = IsFloatForm(form) ? 1.0f : SymmetricBound(form.format);
  for (size_t t = 0; t < slot_of.size(); ++t) {
    const int64_t slot = slot_of[t];
    for (int64_t h = 0; h < heads; ++h) {
      float top = 0;
      for (int64_t g = 0; g < heads; ++g) {
        if (form.scale_per_head && g != h) continue;
        for (int64_t c = 0; c < width; ++c) top = std::max(top, std::abs(values[(t * heads + g) * width + c]));
      }
      const float scale = top > 0 ? top / bound : 1.0f;
      if (!IsFloatForm(form)) store.scales[slot * scales_per_token + (form.scale_per_head ? h : 0)] = scale;
      StoreVector(form, &values[(t * heads + h) * width], width, scale,
                  &store.bytes[slot * store.side.key_stride + h * store.side.head_stride]);
    }
  }
  store.side.data = store.bytes.data();
  if (!IsFloatForm(form)) {
    store.side.scale = store.scales.data();
    store.side.scale_key_stride = scales_per_token;
    store.side.scale_head_stride = form.scale_per_head ? 1 : 0;
    store.side.scale_page_stride = kKeyBlock * scales_per_token;
  }
  return store;
}

struct SegmentSpec {
  int64_t queries, keys;
  int64_t position;  // of the first query; -1: the queries are the last ones, keys - queries
};

struct CaseSpec {
  AttentionShape shape;
  std::vector<SegmentSpec> segments;
  KvForm key_form, value_form;
  bool paged = false;
  DType dtype = DType::kF32;
  uint64_t seed = 1;
  float spread = 2;  // of queries and keys: how peaked the softmax is
};

// Owns everything that a call points to. The numbers of a segment depend on the seed and the segment's index in
// `seed_of` only, so that the same segment can be put into other batches.
class AttentionCase {
 public:
  explicit AttentionCase(const CaseSpec& spec, std::vector<uint64_t> seed_of = {}) : spec_(spec) {
    const AttentionShape& shape = spec_.shape;
    std::vector<float> queries, keys, values, grads;
    std::vector<int64_t> slot_of;
    int64_t slots = 0;
    tables_.resize(spec_.segments.size());
    for (size_t s = 0; s < spec_.segments.size(); ++s) {
      const SegmentSpec& segment = spec_.segments[s];
      const uint64_t seed = spec_.seed * 1000 + (seed_of.empty() ? s : seed_of[s]);
      AttentionSequence sequence;
      sequence.query_begin = tokens_;
      sequence.query_count = segment.queries;
      sequence.position = segment.position >= 0 ? segment.position : segment.keys - segment.queries;
      sequence.kv_length = segment.keys;
      sequence.kv_begin = keys_;
      Append(queries, segment.queries * shape.query_heads * shape.qk_dim, seed * 4, spec_.spread);
      Append(keys, segment.keys * shape.kv_heads * shape.qk_dim, seed * 4 + 1, spec_.spread);
      Append(values, segment.keys * shape.kv_heads * shape.v_dim, seed * 4 + 2, 1);
      Append(grads, segment.queries * shape.query_heads * shape.v_dim, seed * 4 + 3, 1);
      for (int64_t k = 0; k < segment.keys; ++k) slot_of.push_back(keys_ + k);
      tokens_ += segment.queries;
      keys_ += segment.keys;
      sequences_.push_back(sequence);
    }
    slots = keys_;
    if (spec_.paged) slots = MakePages(slot_of);
    key_ = StoreKv(keys, slot_of, slots, shape.kv_heads, shape.qk_dim, spec_.key_form);
    value_ = StoreKv(values, slot_of, slots, shape.kv_heads, shape.v_dim, spec_.value_form);
    query_ = Heads(queries, shape.query_heads, shape.qk_dim);
    grad_out_ = Heads(grads, shape.query_heads, shape.v_dim);
    sinks_ = SampleFloats(shape.query_heads, spec_.seed + 77, 3);
  }

  AttentionCall call() const {
    AttentionCall call;
    call.shape = spec_.shape;
    if (call.shape.sinks != nullptr) call.shape.sinks = sinks_.data();
    call.query = View(query_, spec_.shape.query_heads, spec_.shape.qk_dim);
    call.key = key_.side;
    call.value = value_.side;
    call.sequences = sequences_.data();
    call.sequence_count = static_cast<int64_t>(sequences_.size());
    return call;
  }

  const CaseSpec& spec() const { return spec_; }
  int64_t tokens() const { return tokens_; }
  int64_t keys() const { return keys_; }
  const SampleRows& grad_out() const { return grad_out_; }
  std::vector<AttentionSequence>& sequences() { return sequences_; }
  const std::vector<AttentionSequence>& sequences() const { return sequences_; }

  // [tokens, heads * width] rows with guards, as SampleRows lays them out.
  static ConstHeads View(const SampleRows& rows, int64_t, int64_t width) {
    return {rows.view().data, rows.view().dtype, rows.view().row_stride, width};
  }
  static MutHeads View(SampleRows& rows, int64_t, int64_t width) {
    return {rows.mut().data, rows.mut().dtype, rows.mut().row_stride, width};
  }

 private:
  static void Append(std::vector<float>& to, int64_t count, uint64_t seed, float scale) {
    const std::vector<float> more = SampleFloats(count, seed, scale);
    to.insert(to.end(), more.begin(), more.end());
  }

  SampleRows Heads(const std::vector<float>& values, int64_t heads, int64_t width) const {
    SampleRows rows(spec_.dtype, tokens_, heads * width, 5);
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t c = 0; c < heads * width; ++c) rows.Set(t, c, values[t * heads * width + c]);
    }
    return rows;
  }

  // Pages in a shuffled order with unused ones between; rewrites slot_of and returns the number of slots.
  int64_t MakePages(std::vector<int64_t>& slot_of) {
    int64_t pages = 0;
    for (const SegmentSpec& segment : spec_.segments) pages += RoundUp(segment.keys, kKeyBlock) / kKeyBlock;
    std::vector<int32_t> order(pages + 3);
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[SampleBits(spec_.seed + 5, i) % i]);
    size_t next = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t k = 0; k < sequences_[s].kv_length; ++k) {
        if (k % kKeyBlock == 0) tables_[s].push_back(order[next++]);
        slot_of[sequences_[s].kv_begin + k] = tables_[s].back() * kKeyBlock + k % kKeyBlock;
      }
      sequences_[s].page_table = tables_[s].data();
    }
    return static_cast<int64_t>(order.size()) * kKeyBlock;
  }

  CaseSpec spec_;
  int64_t tokens_ = 0, keys_ = 0;
  std::vector<AttentionSequence> sequences_;
  std::vector<std::vector<int32_t>> tables_;
  KvStore key_, value_;
  SampleRows query_{DType::kF32, 0, 0}, grad_out_{DType::kF32, 0, 0};
  std::vector<float> sinks_;
};

struct ForwardOutput {
  SampleRows out;
  std::vector<float> lse;
  bool operator==(const ForwardOutput& other) const { return out == other.out && HashOf(lse) == HashOf(other.lse); }
};

inline ForwardOutput RunForward(const AttentionCase& problem, Isa isa, int threads = 1) {
  const AttentionShape& shape = problem.spec().shape;
  ThreadPool pool(threads);
  Workspace workspace;
  ForwardOutput output{SampleRows(problem.spec().dtype, problem.tokens(), shape.query_heads * shape.v_dim),
                       std::vector<float>(problem.tokens() * shape.query_heads)};
  AttentionForward(pool, isa, workspace, problem.call(),
                   {AttentionCase::View(output.out, shape.query_heads, shape.v_dim), output.lse.data()});
  return output;
}

struct BackwardOutput {
  SampleRows grad_query, grad_key, grad_value;
  std::vector<float> grad_sinks;
  bool operator==(const BackwardOutput& other) const {
    return grad_query == other.grad_query && grad_key == other.grad_key && grad_value == other.grad_value &&
           HashOf(grad_sinks) == HashOf(other.grad_sinks);
  }
};

inline BackwardOutput RunBackward(const AttentionCase& problem, const ForwardOutput& forward, Isa isa,
                                  int threads = 1) {
  const AttentionShape& shape = problem.spec().shape;
  const DType dtype = problem.spec().dtype;
  ThreadPool pool(threads);
  Workspace workspace;
  BackwardOutput output{SampleRows(dtype, problem.tokens(), shape.query_heads * shape.qk_dim),
                        SampleRows(dtype, problem.keys(), shape.kv_heads * shape.qk_dim),
                        SampleRows(dtype, problem.keys(), shape.kv_heads * shape.v_dim),
                        {}};
  if (shape.sinks != nullptr) output.grad_sinks.resize(problem.sequences().size() * shape.query_heads);
  AttentionGradients gradients;
  gradients.out = AttentionCase::View(forward.out, shape.query_heads, shape.v_dim);
  gradients.lse = forward.lse.data();
  gradients.grad_out = AttentionCase::View(problem.grad_out(), shape.query_heads, shape.v_dim);
  gradients.grad_query = AttentionCase::View(output.grad_query, shape.query_heads, shape.qk_dim);
  gradients.grad_key = AttentionCase::View(output.grad_key, shape.kv_heads, shape.qk_dim);
  gradients.grad_value = AttentionCase::View(output.grad_value, shape.kv_heads, shape.v_dim);
  if (shape.sinks != nullptr) gradients.grad_sinks = output.grad_sinks.data();
  AttentionBackward(pool, isa, workspace, problem.call(), gradients);
  return output;
}

// The shape most tests start from.
inline AttentionShape HeadsOf(int64_t query_heads, int64_t kv_heads, int64_t qk_dim, int64_t v_dim) {
  AttentionShape shape;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.qk_dim = qk_dim;
  shape.v_dim = v_dim;
  shape.scale = 1 / std::sqrt(static_cast<float>(qk_dim));
  return shape;
}

inline CaseSpec With(const AttentionShape& shape, std::vector<SegmentSpec> segments) {
  CaseSpec spec;
  spec.shape = shape;
  spec.segments = std::move(segments);
  return spec;
}

struct NamedCase {
  const char* name;
  CaseSpec spec;
};

inline std::string Describe(const NamedCase& named) {
  const AttentionShape& s = named.spec.shape;
  std::string text = fmt::format("{}: heads {}/{} widths {}/{} window {} chunk {} cap {} format {}{}:", named.name,
                                 s.query_heads, s.kv_heads, s.qk_dim, s.v_dim, s.window, s.chunk, s.soft_cap,
                                 Info(named.spec.key_form.format).name, named.spec.paged ? " paged" : "");
  for (const SegmentSpec& g : named.spec.segments) text += fmt::format(" {}x{}", g.queries, g.keys);
  return text;
}

inline constexpr float kOwnSinks = 0;  // its address in a spec asks for the case's own sinks

}  // namespace octavo::kernels
