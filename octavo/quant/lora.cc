#include "octavo/quant/lora.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/tape.h"

namespace octavo::quant {
namespace {

const DotDims kProduct{{1}, {0}, {}, {}};    // [M, K] · [K, N]
const DotDims kByColumns{{1}, {1}, {}, {}};  // [M, N] · [K, N]ᵀ
const DotDims kByRows{{0}, {0}, {}, {}};     // [M, K]ᵀ · [M, N]

// The rows of one adapter in a batch.
struct Group {
  std::shared_ptr<const LoraAdapter> adapter;
  const LoraFactors* factors = nullptr;
  std::vector<int64_t> rows;
};

Tensor TakeRows(const Tensor& x, const std::vector<int64_t>& rows) {
  if (static_cast<int64_t>(rows.size()) == x.dim(0)) return x;
  Tensor taken = Tensor::Empty({static_cast<int64_t>(rows.size()), x.dim(1)}, x.dtype());
  const int64_t bytes = x.dim(1) * SizeOf(x.dtype());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(taken.MutableRawData() + static_cast<int64_t>(i) * bytes, x.RawData() + rows[i] * bytes,
                static_cast<size_t>(bytes));
  }
  return taken;
}

// out[rows[i]] += scale · delta[i], one rounding of the product and one of the sum.
void AddRows(Tensor& out, const std::vector<int64_t>& rows, const Tensor& delta, float scale) {
  const int64_t width = out.dim(1);
  const float* from = delta.Data<float>();
  for (const int64_t row : rows) {
    if (out.dtype() == DType::kF32) {
      float* to = out.MutableData<float>() + row * width;
      for (int64_t i = 0; i < width; ++i) to[i] = to[i] + scale * from[i];
    } else {
      uint16_t* to = out.MutableData<uint16_t>() + row * width;
      for (int64_t i = 0; i < width; ++i) to[i] = F32ToBF16(BF16ToF32(to[i]) + scale * from[i]);
    }
    from += width;
  }
}

// scale · x in f32.
Tensor Scaled(const Tensor& x, float scale) {
  Tensor result = Tensor::Empty(x.shape(), DType::kF32);
  float* to = result.MutableData<float>();
  for (int64_t i = 0; i < x.size(); ++i) {
    to[i] = scale * (x.dtype() == DType::kF32 ? x.Data<float>()[i] : BF16ToF32(x.Data<uint16_t>()[i]));
  }
  return result;
}

// Projections contract the last axes of the activation with the first of the weight.
bool IsProjection(const ops::DotCall& call) {
  if (call.rhs.role != ops::Role::kWeight || call.rhs.parameter == nullptr || !call.dims.lhs_batch.empty())
    return false;
  const auto count = static_cast<int>(call.dims.lhs_contract.size());
  const int rank = call.lhs.shape().rank();
  for (int i = 0; i < count; ++i) {
    if (call.dims.lhs_contract[static_cast<size_t>(i)] != rank - count + i) return false;
    if (call.dims.rhs_contract[static_cast<size_t>(i)] != i) return false;
  }
  return true;
}

}  // namespace

int64_t LoraAdapter::bytes() const {
  int64_t total = 0;
  for (const auto& [weight, part] : factors) total += part.a.tensor().bytes() + part.b.tensor().bytes();
  return total;
}

int LoraProvider::Add(const std::shared_ptr<const LoraAdapter>& adapter) {
  const std::lock_guard lock(mutex_);
  std::erase_if(adapters_, [](const auto& entry) { return entry.second.expired(); });  // each step looks at all of them
  adapters_.emplace(++last_, adapter);
  return last_;
}

std::shared_ptr<const LoraAdapter> LoraProvider::Find(int number) const {
  const std::lock_guard lock(mutex_);
  const auto at = adapters_.find(number);
  return at == adapters_.end() ? nullptr : at->second.lock();
}

bool LoraProvider::AnyFor(const std::string& weight) const {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : adapters_) {
    const auto adapter = entry.second.lock();
    if (adapter != nullptr && adapter->factors.contains(weight)) return true;
  }
  return false;
}

std::optional<ops::Var> LoraProvider::Dot(ops::Context& context, const ops::DotCall& call) {
  const ops::Parameter* weight = call.rhs.parameter;
  // Who takes part in this call: adapters with factors for the weight, and their rows.
  std::vector<Group> groups;
  const auto contracted = static_cast<size_t>(call.dims.lhs_contract.size());
  const Shape lhs = call.lhs.shape();
  int64_t rows = 1;
  for (int i = 0; i < lhs.rank() - static_cast<int>(contracted); ++i) rows *= lhs[i];
  const bool by_row = context.rows != nullptr && !context.rows->adapter.empty();
  if (weight != nullptr && (by_row || for_all_ != 0)) {
    std::map<int, std::vector<int64_t>> rows_of;
    if (by_row) {
      if (static_cast<int64_t>(context.rows->adapter.size()) != rows) {
        if (AnyFor(weight->name)) {
          ThrowUsage("{}: {} rows, but {} of them have an adapter", call.site.ToString(), rows,
                     context.rows->adapter.size());
        }
      } else {
        for (int64_t i = 0; i < rows; ++i) {
          const int number = context.rows->adapter[static_cast<size_t>(i)];
          if (number != 0) rows_of[number].push_back(i);
        }
      }
    } else {
      for (int64_t i = 0; i < rows; ++i) rows_of[for_all_].push_back(i);
    }
    for (auto& [number, which] : rows_of) {
      Group group{Find(number), nullptr, std::move(which)};
      if (group.adapter == nullptr) ThrowUsage("{}: adapter {} is not loaded", call.site.ToString(), number);
      const auto at = group.adapter->factors.find(weight->name);
      if (at == group.adapter->factors.end()) continue;
      if (!IsProjection(call)) ThrowUsage("{}: an adapter cannot change this product", call.site.ToString());
      group.factors = &at->second;
      groups.push_back(std::move(group));
    }
  }
  std::optional<ops::Var> base = next_ == nullptr ? std::nullopt : next_->Dot(context, call);
  if (groups.empty()) return base;
  if (!base) base = ops::FloatAnswer(context, call);
  const Tensor x = call.lhs.tensor().Contiguous().Reshape({rows, lhs.size() / rows});
  const int64_t width = base->value.size() / rows;
  Tensor out = base->value;
  if (call.kept == nullptr && !out.is_meta()) {
    out = Tensor::Empty({rows, width}, base->value.dtype());
    std::memcpy(out.MutableRawData(), base->value.Contiguous().RawData(), static_cast<size_t>(out.bytes()));
    for (const Group& group : groups) {
      const Tensor inner = ops::FloatDot(context, call.site.path, TakeRows(x, group.rows), group.factors->a.tensor(),
                                         kProduct, DType::kF32);
      const Tensor delta =
          ops::FloatDot(context, call.site.path, inner, group.factors->b.tensor(), kProduct, DType::kF32);
      AddRows(out, group.rows, delta, group.factors->scale);
    }
    out = out.Reshape(base->value.shape());
  }
  if (context.tape == nullptr) return ops::Var(std::move(out));
  if (groups.size() != 1 || static_cast<int64_t>(groups[0].rows.size()) != rows) {
    ThrowUsage("{}: gradients need one adapter for all rows", call.site.ToString());
  }
  const LoraFactors& factors = *groups[0].factors;
  const ops::Var a = context.tape->Leaf(factors.a), b = context.tape->Leaf(factors.b);
  return context.tape->Record(
      std::move(out), {base->node, call.lhs.node, a.node, b.node},
      [x, shape = lhs, adapter = groups[0].adapter, &factors, rows, where = call.site.path](ops::Context& back,
                                                                                            const Tensor& grad) {
        const Tensor flat = Scaled(grad.Contiguous().Reshape({rows, grad.size() / rows}), factors.scale);
        const Tensor &a_value = factors.a.tensor(), &b_value = factors.b.tensor();
        const Tensor inner = ops::FloatDot(back, where, x, a_value, kProduct, DType::kF32);
        const Tensor grad_inner = ops::FloatDot(back, where, flat, b_value, kByColumns, DType::kF32);
        const Tensor grad_x = ops::FloatDot(back, where, grad_inner, a_value, kByColumns, x.dtype());
        const Tensor grad_a = ops::FloatDot(back, where, x, grad_inner, kByRows, DType::kF32);
        const Tensor grad_b = ops::FloatDot(back, where, inner, flat, kByRows, DType::kF32);
        return std::vector<Tensor>{grad, grad_x.Reshape(shape), grad_a, grad_b};
      });
}

std::optional<std::vector<ops::Var>> LoraProvider::Dots(ops::Context& context, std::span<const ops::DotCall> calls) {
  const bool by_row = context.rows != nullptr && !context.rows->adapter.empty();
  const bool plain =
      by_row ? std::ranges::count(context.rows->adapter, 0) == std::ssize(context.rows->adapter) : for_all_ == 0;
  return plain && next_ != nullptr ? next_->Dots(context, calls) : std::nullopt;
}

std::optional<ops::Var> LoraProvider::RaggedDot(ops::Context& context, const ops::RaggedCall& call) {
  if (call.rhs.parameter != nullptr && AnyFor(call.rhs.parameter->name)) {
    ThrowUsage("{}: adapters of experts are not supported", call.site.ToString());
  }
  return next_ == nullptr ? std::nullopt : next_->RaggedDot(context, call);
}

bool LoraProvider::Answers(const ops::Site& site) const {
  return (next_ != nullptr && next_->Answers(site)) || AnyFor(site.path + "/kernel");
}

void LoraProvider::Fused(ops::Context& context, const ops::DotCall& call) {
  if (call.rhs.parameter != nullptr && AnyFor(call.rhs.parameter->name)) {
    ThrowUsage("{}: an adapter changes it, but it was computed inside another op", call.site.ToString());
  }
  if (next_ != nullptr) next_->Fused(context, call);
}

std::optional<ops::KvFormat> LoraProvider::KvCache(ops::Context& context, const ops::KvCall& call) {
  return next_ == nullptr ? std::nullopt : next_->KvCache(context, call);
}

void LoraProvider::Observe(ops::Context& context, const ops::Site& site, const Tensor& output) {
  if (next_ != nullptr) next_->Observe(context, site, output);
}

}  // namespace octavo::quant
