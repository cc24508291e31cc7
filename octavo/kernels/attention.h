// Attention over key blocks: forward (prefill, chunks and decode alike) and backward; grouped heads, causal or not,
// windows, local chunks, soft cap, sinks; keys and values as floats or quantized, contiguous or in pages of 64. Used by
// ops/. It does not write the cache, rotate positions or know about layers.
//
// Bits. They depend on the query's row, its sequence's keys and the shape only: not on the other rows of the call, the
// chunk it came in, the storage layout, the thread count or the instruction set. With fma chains ascending from +0:
//   score    z = chain over features of (fl(q * scale)) * k in leaves of 256, leaves added ascending;
//            then soft_cap * Tanh(z * fl(1 / soft_cap)); a key that is not visible has z = -inf
//   block    64 keys at positions 64 i …; m' = max(m, max z); c = Exp(m - m'); p = Exp(z - m');
//            l = fma(l, c, sum p), the sum over 16 lanes (key % 16, ascending) and the fold of lanes.h;
//            o = fma(o, c, chain over the keys of p * v); m = m'
//   super    blocks of 1024 keys, each from (m, l, o) = (lowest float, 0, 0)
//   merge    super-blocks ascending: m' = max(M, m), a = Exp(M - m'), b = Exp(m - m'),
//            L = fma(l, b, L * a), O = fma(o, b, O * a), M = m', from (lowest float, 0, 0)
//   sink     last: m' = max(M, s), a = Exp(M - m'), L = fma(L, a, Exp(s - m')), O = O * a
//   result   O / L + 0, lse = M + Log(L); a row that sees nothing gives 0 (and lse = M = sink, or -inf without one)
// A block without a visible key leaves (m, l, o) as they are, so windows only mask: skipping it changes nothing.
//
// Gradients, from the stored out and lse:
//   D  = sum over features of grad_out * out (16 lanes and the fold of lanes.h, fma)
//   p  = Exp(z - lse), 0 where not visible;  dp = chain over features of v * grad_out, leaves of 256
//   ds = p * (dp - D), with a soft cap times fma(-t, t, 1), t = Tanh(…)
//   grad_query = fl(scale * sum of ds * k) + 0, leaves of 64 keys at positions 64 i …, leaves added ascending
//   grad_value = sum of p * grad_out, grad_key = sum of ds * fl(q * scale): heads of the group ascending, in each the
//                leaves of 256 queries at positions 256 i … ascending; + 0
//   grad_sinks = sum over the queries of -Exp(sink - lse) * D, leaves of 256 positions ascending
// Inputs are taken to be finite; which row an infinity or NaN behind the mask reaches is not specified.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/attention_types.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

// Shapes, strides and formats that do not fit are usage errors. `call` may mix sequences of any lengths.
void AttentionForward(ThreadPool& pool, Isa isa, Workspace& workspace, const AttentionCall& call,
                      const AttentionResult& result);

// Overwrites the gradients of every query row and of every key and value of the sequences.
void AttentionBackward(ThreadPool& pool, Isa isa, Workspace& workspace, const AttentionCall& call,
                       const AttentionGradients& gradients);

// Which kernel one sequence of a call would get, and why each faster one declined: for plans, doctor and benchmarks.
struct AttentionChoice {
  std::string name;
  std::vector<std::string> declined;  // "name: reason", in the order they were asked
};
AttentionChoice ChooseAttention(Isa isa, const AttentionCall& call, const AttentionSequence& sequence);

}  // namespace octavo::kernels
