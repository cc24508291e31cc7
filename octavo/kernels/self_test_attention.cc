// Self tests of attention.
#include "octavo/kernels/attention.h"
#include "octavo/kernels/self_test_cases.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kTokens = 140, kHeads = 4, kKvHeads = 2, kDim = 24;

// Two sequences, one of them a single query at the end of its keys.
AttentionCall CallOf(const AttentionShape& shape, const SampleRows& q, const SampleRows& k, const SampleRows& v,
                     const AttentionSequence* sequences) {
  const auto side = [](const SampleRows& rows) {
    KvSide out;
    out.data = rows.view().data;
    out.format = rows.view().dtype == DType::kF32 ? Format::kF32 : Format::kBF16;
    const int64_t size = SizeOf(rows.view().dtype);
    out.key_stride = rows.view().row_stride * size;
    out.head_stride = kDim * size;
    return out;
  };
  return {shape, {q.view().data, q.view().dtype, q.view().row_stride, kDim}, side(k), side(v), sequences, 2};
}

}  // namespace

void SelfTestAttention(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  Workspace workspace;
  const AttentionSequence sequences[] = {{0, 100, 0, 0, 100, nullptr}, {100, 1, 39, 100, 40, nullptr}};
  const std::vector<float> sinks = SampleFloats(kHeads, 9);
  AttentionShape plain;
  plain.query_heads = kHeads;
  plain.kv_heads = kKvHeads;
  plain.qk_dim = plain.v_dim = kDim;
  plain.scale = 0.3f;
  AttentionShape windowed = plain;
  windowed.window = 33;
  windowed.soft_cap = 20;
  windowed.sinks = sinks.data();
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const SampleRows q = SampleRows::Random(dtype, kTokens, kHeads * kDim, 1, 2),
                     k = SampleRows::Random(dtype, kTokens, kKvHeads * kDim, 2, 2),
                     v = SampleRows::Random(dtype, kTokens, kKvHeads * kDim, 3);
    for (const AttentionShape& shape : {plain, windowed}) {
      SampleRows out[2] = {{dtype, kTokens, kHeads * kDim}, {dtype, kTokens, kHeads * kDim}};
      std::vector<float> lse[2] = {std::vector<float>(kTokens * kHeads), std::vector<float>(kTokens * kHeads)};
      for (int slot = 0; slot < 2; ++slot) {
        const MutRows rows = out[slot].mut();
        AttentionForward(pool, slot == 0 ? Isa::kReference : isa, workspace, CallOf(shape, q, k, v, sequences),
                         {{rows.data, dtype, rows.row_stride, kDim}, lse[slot].data()});
      }
      const std::string name = shape.window > 0 ? "windowed attention " : "attention ";
      log.Compare(name + std::string(NameOf(dtype)), out[0], out[1]);
      log.Compare(name + "logsumexp " + std::string(NameOf(dtype)), lse[0], lse[1]);
    }
  }
}

}  // namespace octavo::kernels
