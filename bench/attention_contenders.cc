#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bench/attention.h"
#include "octavo/base/error.h"
#include "octavo/kernels/sample_rows.h"
#include "octavo/numerics/half.h"

namespace octavo::bench {
namespace {

using kernels::AttentionCall;
using kernels::AttentionSequence;
using kernels::KvSide;

// Keys or values as they are stored, and what is needed to read them.
struct Stored {
  kernels::Buffer bytes;  // as the cache of a server: on huge pages
  std::vector<float> scales;
  KvSide side;
};

struct StoredForm {
  const char* name;
  Format format;
  bool packed;
  int bits;
};
constexpr StoredForm kForms[] = {{"f32", Format::kF32, false, 32},
                                 {"bf16", Format::kBF16, false, 16},
                                 {"int8", Format::kInt8, false, 8},
                                 {"int4", Format::kInt4, true, 4},
                                 {"fp8", Format::kF8E4M3FN, false, 8}};

const StoredForm& FormOf(const std::string& name) {
  for (const StoredForm& form : kForms) {
    if (name == form.name) return form;
  }
  ThrowUsage("bench attention: keys cannot be stored as '{}'; known: f32 bf16 int8 int4 fp8", name);
}

// `values` [tokens, heads, width] in the form. Without values the vectors are random ones and lie as a server keeps
// them: pages of 64 keys, head after head (decode shapes).
Stored Store(const StoredForm& form, const std::vector<float>& values, int64_t tokens, int64_t heads, int64_t width,
             uint64_t seed) {
  Stored stored;
  const int64_t vector_bytes = width * form.bits / 8;
  stored.bytes = kernels::Buffer(static_cast<size_t>(tokens * heads * vector_bytes));
  auto* bytes = static_cast<uint8_t*>(stored.bytes.data());
  const bool has_scale = form.bits <= 8;
  if (has_scale) stored.scales.assign(tokens * heads, 1.0f / 64);
  for (int64_t i = 0; i < tokens * heads; ++i) {
    for (int64_t b = 0; b < vector_bytes && values.empty() && has_scale; b += 8) {
      const uint64_t bits = kernels::SampleBits(seed, i * vector_bytes + b) & 0xbfbfbfbfbfbfbfbfull;  // no fp8 NaN
      std::memcpy(bytes + i * vector_bytes + b, &bits, 8);
    }
    for (int64_t c = 0; c < width && (!values.empty() || !has_scale); ++c) {
      const float value = values.empty() ? kernels::SampleValue(seed, i * width + c) : values[i * width + c];
      const uint16_t half = F32ToBF16(value);
      if (form.bits == 32) std::memcpy(bytes + i * vector_bytes + c * 4, &value, 4);
      if (form.bits == 16) std::memcpy(bytes + i * vector_bytes + c * 2, &half, 2);
      if (form.bits == 8) {
        bytes[i * vector_bytes + c] = static_cast<uint8_t>(Encode(form.format, value * 64, OverflowPolicy::kSaturate));
      }
    }
  }
  KvSide& side = stored.side;
  side.data = bytes;
  side.format = form.format;
  side.packed = form.packed;
  const bool paged = values.empty();
  side.head_stride = paged ? kernels::kKeyBlock * vector_bytes : vector_bytes;
  side.key_stride = paged ? vector_bytes : heads * vector_bytes;
  side.page_stride = kernels::kKeyBlock * heads * vector_bytes;
  if (has_scale) {
    side.scale = stored.scales.data();
    side.scale_head_stride = paged ? kernels::kKeyBlock : 1;
    side.scale_key_stride = paged ? 1 : heads;
    side.scale_page_stride = kernels::kKeyBlock * heads;
  }
  return stored;
}

// One call with all it points to.
struct Problem {
  std::shared_ptr<AttentionData> data;
  Stored key, value;
  std::vector<int32_t> pages;
  AttentionSequence sequence;
  AttentionCall call;

  kernels::AttentionResult Result() {
    return {{data->out.data(), DType::kF32, data->shape.heads * data->shape.v, data->shape.v}, data->lse.data()};
  }
  kernels::AttentionGradients Gradients() {
    const AttentionBenchShape& s = data->shape;
    kernels::AttentionGradients g;
    g.out = {data->out.data(), DType::kF32, s.heads * s.v, s.v};
    g.lse = data->lse.data();
    g.grad_out = {data->grad_out.data(), DType::kF32, s.heads * s.v, s.v};
    g.grad_query = {data->grad_query.data(), DType::kF32, s.heads * s.qk, s.qk};
    g.grad_key = {data->grad_key.data(), DType::kF32, s.kv_heads * s.qk, s.qk};
    g.grad_value = {data->grad_value.data(), DType::kF32, s.kv_heads * s.v, s.v};
    return g;
  }
};

std::shared_ptr<Problem> MakeProblem(std::shared_ptr<AttentionData> data) {
  const AttentionBenchShape& s = data->shape;
  auto p = std::make_shared<Problem>();
  p->data = data;
  const StoredForm& form = FormOf(s.stored);
  p->key = Store(form, data->key, s.length, s.kv_heads, s.qk, 21);
  p->value = Store(form, data->value, s.length, s.kv_heads, s.v, 22);
  p->sequence.query_count = s.decode() ? 1 : s.length;
  p->sequence.position = s.length - p->sequence.query_count;
  p->sequence.kv_length = s.length;
  if (s.decode()) {
    p->pages.resize(s.length / kernels::kKeyBlock);
    for (size_t i = 0; i < p->pages.size(); ++i) p->pages[i] = static_cast<int32_t>(i);
    for (size_t i = p->pages.size(); i > 1; --i) std::swap(p->pages[i - 1], p->pages[kernels::SampleBits(9, i) % i]);
    p->sequence.page_table = p->pages.data();
  }
  p->call.shape.query_heads = s.heads;
  p->call.shape.kv_heads = s.kv_heads;
  p->call.shape.qk_dim = s.qk;
  p->call.shape.v_dim = s.v;
  p->call.shape.scale = 1 / std::sqrt(static_cast<float>(s.qk));
  p->call.shape.causal = s.causal();
  p->call.query = {data->query.data(), DType::kF32, s.heads * s.qk, s.qk};
  p->call.key = p->key.side;
  p->call.value = p->value.side;
  p->call.sequences = &p->sequence;
  p->call.sequence_count = 1;
  return p;
}

// A few query rows again, one by one and by the reference: they must have the same bits.
Verdict CheckRows(AttentionBench& bench, Problem& p) {
  const AttentionBenchShape& s = p.data->shape;
  const int64_t count = s.decode() ? 1 : 5;
  std::vector<float> out(p.data->out.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    AttentionSequence row = p.sequence;
    row.query_begin = count == 1 ? 0 : (s.length - 1) * i / (count - 1);
    row.position = p.sequence.position + row.query_begin;
    row.query_count = 1;
    AttentionCall call = p.call;
    call.sequences = &row;
    kernels::AttentionForward(bench.pool, kernels::Isa::kReference, bench.workspace, call,
                              {{out.data(), DType::kF32, s.heads * s.v, s.v}, nullptr});
    const int64_t at = row.query_begin * s.heads * s.v;
    wrong += std::memcmp(&out[at], &p.data->out[at], static_cast<size_t>(s.heads * s.v) * sizeof(float)) != 0;
  }
  if (wrong == 0) return {true, 0, "bits of the reference"};
  return {false, static_cast<double>(wrong) / static_cast<double>(count), "rows differ from the reference"};
}

Contender Ours(AttentionBench& bench, std::shared_ptr<Problem> p, std::shared_ptr<ComposedAttention> composed) {
  const AttentionBenchShape& s = p->data->shape;
  Contender ours;
  ours.name = "octavo";
  ours.family = s.stored;
  ours.macs = s.macs();
  if (s.decode()) ours.bytes = static_cast<double>(p->key.bytes.bytes() + p->value.bytes.bytes());
  if (s.pass == "backward") {
    kernels::AttentionForward(bench.pool, bench.isa, bench.workspace, p->call, p->Result());
    ours.run = [&bench, p](int64_t) {
      kernels::AttentionBackward(bench.pool, bench.isa, bench.workspace, p->call, p->Gradients());
    };
  } else {
    ours.run = [&bench, p](int64_t) {
      kernels::AttentionForward(bench.pool, bench.isa, bench.workspace, p->call, p->Result());
    };
  }
  ours.check = [&bench, p, composed] {
    Verdict verdict{true, 0, "not compared"};
    if (p->data->shape.pass != "backward") verdict = CheckRows(bench, *p);
    if (composed == nullptr || !verdict.right) return verdict;
    const double difference = ComposedDifference(*composed, *p->data);
    if (!(difference < 1e-4)) return Verdict{false, 1, fmt::format("differs from the peer by {:.1e}", difference)};
    return Verdict{true, 0,
                   fmt::format("{}peer {:.0e}", p->data->shape.pass == "backward" ? "" : "bits; ", difference)};
  };
  return ours;
}

}  // namespace

AttentionData::AttentionData(const AttentionBenchShape& of) : shape(of) {
  const int64_t queries = shape.decode() ? 1 : shape.length;
  query = kernels::SampleFloats(queries * shape.heads * shape.qk, 11, 2);
  out.resize(queries * shape.heads * shape.v);
  lse.resize(queries * shape.heads);
  if (shape.decode()) return;
  key = kernels::SampleFloats(shape.length * shape.kv_heads * shape.qk, 12, 2);
  value = kernels::SampleFloats(shape.length * shape.kv_heads * shape.v, 13, 1);
  grad_out = kernels::SampleFloats(queries * shape.heads * shape.v, 14, 1);
  grad_query.resize(query.size());
  grad_key.resize(key.size());
  grad_value.resize(value.size());
}

std::vector<AttentionBenchShape> ReadAttentionShapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) ThrowFile("cannot read the shapes in {}", path);
  std::vector<AttentionBenchShape> shapes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    AttentionBenchShape s;
    if (!(words >> s.name)) continue;
    words >> s.pass >> s.length >> s.heads >> s.kv_heads >> s.qk >> s.v >> s.mask >> s.stored;
    const bool known_pass = s.pass == "forward" || s.pass == "backward" || s.pass == "decode";
    if (words.fail() || !known_pass || (s.mask != "causal" && s.mask != "full") || s.length < 1 || s.heads < 1 ||
        s.kv_heads < 1 || s.heads % s.kv_heads != 0 || (s.decode() && s.length % kernels::kKeyBlock != 0)) {
      ThrowFile("{}:{}: expected name pass T heads kv_heads qk v causal|full stored (decode: T in whole pages of {})",
                path, number, kernels::kKeyBlock);
    }
    shapes.push_back(s);
  }
  return shapes;
}

std::vector<Contender> AttentionContenders(AttentionBench& bench, const AttentionBenchShape& shape) {
  auto data = std::make_shared<AttentionData>(shape);
  std::vector<Contender> contenders;
  std::shared_ptr<ComposedAttention> composed = MakeComposed(bench, data);
  if (composed != nullptr) contenders.push_back(ComposedContender(shape, composed));
  contenders.push_back(Ours(bench, MakeProblem(data), composed));
  return contenders;
}

}  // namespace octavo::bench
