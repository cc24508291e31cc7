// Who answers an op before its float version runs. A provider returns a result, or nullopt and the float op runs; it
// may also only observe. A provider calls kernels, never ops: no recursion guard is needed. Providers wrap each other
// (LoRA wraps the quantizing one).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/ops/dot_dims.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/site.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct Context;

enum class Role : uint8_t { kActivation, kWeight };

// One input of a dot. The role is stated, never guessed from shapes: a Parameter makes the weight operand. Codes are
// the parameter's own: a call that may have to answer hundreds of times per token does not copy three tensors.
struct Operand {
  std::variant<Tensor, const QArray*> value;
  Role role = Role::kActivation;
  const Parameter* parameter = nullptr;
  NodeId node = kConstant;

  bool quantized() const { return std::holds_alternative<const QArray*>(value); }
  const Tensor& tensor() const { return std::get<Tensor>(value); }
  const QArray& qarray() const { return *std::get<const QArray*>(value); }
  const Shape& shape() const { return quantized() ? qarray().qvalue.shape() : tensor().shape(); }
};

// dot_general, and einsum of two operands as the dot it becomes. The result's axes are batch, lhs free, rhs free.
struct DotCall {
  Site site;
  const Operand& lhs;
  const Operand& rhs;
  const DotDims& dims;
  std::string_view equation;     // of an einsum; empty otherwise
  const Tensor* kept = nullptr;  // remat kept this output: record the node without running the product
};

// Rows of lhs [M, K] sorted by group, rhs [G, K, N]. group_sizes is i32 [G]; rows past the last group give zero.
struct RaggedCall {
  Site site;
  const Operand& lhs;
  const Operand& rhs;
  const Tensor& group_sizes;
  const Tensor* kept = nullptr;  // as in DotCall
};

// Keys [B, T, K, D] and values [B, T, K, V] on their way into attention.
struct KvCall {
  Site site;
  const Tensor& key;
  const Tensor& value;
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;
  virtual std::optional<Var> Dot(Context&, const DotCall&) { return std::nullopt; }
  // Projections of one activation, in inference only: all of them at once, or nullopt, and Dot is asked for each.
  virtual std::optional<std::vector<Var>> Dots(Context&, std::span<const DotCall>) { return std::nullopt; }
  virtual std::optional<Var> RaggedDot(Context&, const RaggedCall&) { return std::nullopt; }
  // Whether it may answer the dot of this site. When it does not, an op may compute the dot as part of something larger
  // (the head inside the loss) and only announces it (Fused).
  virtual bool Answers(const Site&) const { return true; }
  // A dot that an op computes inside itself (a norm's scale, the products of attention, the one-hot product of an
  // embedding): it has a site, but it cannot be answered. Who must change its numbers throws.
  virtual void Fused(Context&, const DotCall&) {}
  // How the keys and values of an attention op are stored before it reads them; nullopt: as they are computed.
  virtual std::optional<KvFormat> KvCache(Context&, const KvCall&) { return std::nullopt; }
  // The output of a dot that has just been computed, whoever answered it: for those who only look (eval/). Not called
  // for outputs that remat kept.
  virtual void Observe(Context&, const Site&, const Tensor& out) { static_cast<void>(out); }
};

}  // namespace octavo::ops
