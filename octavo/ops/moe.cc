#include "octavo/ops/moe.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/embedding.h"
#include "octavo/kernels/experts.h"
#include "octavo/kernels/router.h"
#include "octavo/numerics/half.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/einsum_dims.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

kernels::ConstRows RowsOf(const Tensor& x) {
  const int64_t cols = x.dim(-1);
  return {x.RawData(), x.dtype(), cols == 0 ? 0 : x.size() / cols, cols, cols};
}

kernels::MutRows MutableRowsOf(Tensor& x) {
  const int64_t cols = x.dim(-1);
  return {x.MutableRawData(), x.dtype(), cols == 0 ? 0 : x.size() / cols, cols, cols};
}

kernels::RouterSpec SpecOf(const RouterOptions& options, int64_t experts) {
  kernels::RouterSpec spec;
  spec.score = options.score == RouterScore::kSoftmax   ? kernels::RouterScore::kSoftmax
               : options.score == RouterScore::kSigmoid ? kernels::RouterScore::kSigmoid
                                                        : kernels::RouterScore::kSoftmaxOfTopK;
  spec.experts = experts;
  spec.top_k = options.top_k;
  spec.groups = options.groups;
  spec.top_groups = options.top_groups;
  spec.group_score =
      options.score == RouterScore::kSigmoid ? kernels::GroupScore::kTopTwoSum : kernels::GroupScore::kMax;
  spec.normalize = options.normalize;
  spec.scale = static_cast<float>(options.scale);
  return spec;
}

// bf16 widened, f32 as it is.
Tensor AsF32(const Tensor& x) {
  const Tensor from = x.Contiguous();
  if (from.dtype() == DType::kF32) return from;
  if (from.dtype() != DType::kBF16) ThrowUsage("RouteTokens: expected f32 or bf16 logits, found {}", x.ToString());
  Tensor wide = Tensor::Empty(x.shape(), DType::kF32);
  const uint16_t* codes = from.Data<uint16_t>();
  float* out = wide.MutableData<float>();
  for (int64_t i = 0; i < from.size(); ++i) out[i] = BF16ToF32(codes[i]);
  return wide;
}

Tensor AsType(const Tensor& x, DType dtype) {
  if (dtype == DType::kF32) return x;
  Tensor narrow = Tensor::Empty(x.shape(), dtype);
  const float* values = x.Data<float>();
  uint16_t* out = narrow.MutableData<uint16_t>();
  for (int64_t i = 0; i < x.size(); ++i) out[i] = F32ToBF16(values[i]);
  return narrow;
}

Tensor Gather(Context& context, const Tensor& x, const Tensor& id) {
  const Tensor table = x.Contiguous();
  Tensor out = Tensor::Empty({id.size(), x.dim(-1)}, x.dtype());
  kernels::GatherRows(context.pool, context.isa, {RowsOf(table), id.Data<int32_t>(), MutableRowsOf(out)});
  return out;
}

// Row numbers of the tokens behind sorted rows.
Tensor TokensOf(const Routing& routing) {
  Tensor tokens = Tensor::Empty(routing.sorted.shape(), DType::kI32);
  const int32_t* place = routing.sorted.Data<int32_t>();
  int32_t* out = tokens.MutableData<int32_t>();
  const auto top_k = static_cast<int32_t>(routing.top_k());
  for (int64_t i = 0; i < tokens.size(); ++i) out[i] = place[i] / top_k;
  return tokens;
}

Tensor Counting(int64_t count) {
  Tensor ids = Tensor::Empty({count}, DType::kI32);
  int32_t* out = ids.MutableData<int32_t>();
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(i);
  return ids;
}

Routing MetaRouting(int64_t tokens, int64_t experts, int64_t top_k) {
  Routing routing;
  routing.weight = Tensor::Meta({tokens, top_k}, DType::kF32);
  routing.expert = Tensor::Meta({tokens, top_k}, DType::kI32);
  routing.sorted = routing.row_of = Tensor::Meta({tokens * top_k}, DType::kI32);
  routing.group_sizes = Tensor::Meta({experts}, DType::kI32);
  return routing;
}

// Sorted order and group sizes of chosen experts.
void Order(Routing& routing, int64_t experts) {
  const int64_t places = routing.expert.size();
  routing.sorted = Tensor::Empty({places}, DType::kI32);
  routing.row_of = Tensor::Empty({places}, DType::kI32);
  routing.group_sizes = Tensor::Empty({experts}, DType::kI32);
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  kernels::OrderByExpert({places, experts, routing.expert.Data<int32_t>(), routing.sorted.MutableData<int32_t>(),
                          routing.row_of.MutableData<int32_t>(), counts.data()});
  std::copy(counts.begin(), counts.end(), routing.group_sizes.MutableData<int32_t>());
}

}  // namespace

Routing RouteTokens(Context& context, const Var& logits, const Tensor& bias, const RouterOptions& options) {
  if (logits.value.rank() != 2) ThrowUsage("RouteTokens: logits are {}, expected [tokens, experts]", logits.shape());
  const int64_t tokens = logits.shape()[0], experts = logits.shape()[1], top_k = options.top_k;
  if (bias.defined() && (bias.shape() != Shape{experts} || bias.dtype() != DType::kF32)) {
    ThrowUsage("RouteTokens: the bias is {}, expected f32[{}]", bias.ToString(), experts);
  }
  if (logits.value.is_meta()) return MetaRouting(tokens, experts, top_k);
  const Tensor wide = AsF32(logits.value);
  const Tensor offset = bias.defined() ? bias.Contiguous() : Tensor();
  kernels::RouterSpec spec = SpecOf(options, experts);
  spec.bias = offset.defined() ? offset.Data<float>() : nullptr;
  Routing routing;
  routing.expert = Tensor::Empty({tokens, top_k}, DType::kI32);
  Tensor weight = Tensor::Empty({tokens, top_k}, DType::kF32), score = Tensor::Empty({tokens, experts}, DType::kF32);
  kernels::Route(context.pool, context.isa,
                 {spec, RowsOf(wide), routing.expert.MutableData<int32_t>(), weight.MutableData<float>(),
                  score.MutableData<float>()});
  Order(routing, experts);
  routing.weight = Var(weight);
  if (context.tape == nullptr) return routing;
  spec.bias = nullptr;  // the choice is made
  routing.weight = context.tape->Record(
      weight, {logits.node},
      [spec, tokens, expert = routing.expert, score, dtype = logits.dtype()](Context& back, const Tensor& grad) {
        const Tensor grad_weight = grad.Contiguous();
        Tensor grad_logits = Tensor::Empty(score.shape(), DType::kF32);
        kernels::RouteBackward(back.pool, {spec, tokens, expert.Data<int32_t>(), score.Data<float>(),
                                           grad_weight.Data<float>(), grad_logits.MutableData<float>()});
        return std::vector<Tensor>{AsType(grad_logits, dtype)};
      });
  return routing;
}

Var DispatchRows(Context& context, const Var& x, const Routing& routing) {
  const int64_t tokens = routing.expert.dim(0), top_k = routing.top_k();
  if (x.value.rank() != 2 || x.shape()[0] != tokens) {
    ThrowUsage("DispatchRows: x is {}, expected {} rows", x.shape(), tokens);
  }
  if (x.value.is_meta()) return Var(Tensor::Meta({tokens * top_k, x.shape()[1]}, x.dtype()));
  Tensor out = Gather(context, x.value, TokensOf(routing));
  if (context.tape == nullptr) return Var(std::move(out));
  // A row went out to top_k places: their gradients are added in router order.
  return context.tape->Record(
      std::move(out), {x.node}, [row_of = routing.row_of, tokens, top_k](Context& back, const Tensor& grad) {
        const Tensor rows = grad.Contiguous();
        Tensor sum = Tensor::Empty({tokens, grad.dim(1)}, grad.dtype());
        kernels::CombineExperts(back.pool, back.isa,
                                {RowsOf(rows), row_of.Data<int32_t>(), nullptr, top_k, MutableRowsOf(sum)});
        return std::vector<Tensor>{sum};
      });
}

Var CollectRows(Context& context, const Var& y, const Routing& routing) {
  const Shape shape{routing.expert.dim(0), routing.top_k(), y.shape()[1]};
  if (y.value.is_meta()) return Var(Tensor::Meta(shape, y.dtype()));
  Tensor out = Gather(context, y.value, routing.row_of).Reshape(shape);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {y.node},
                              [sorted = routing.sorted, flat = y.shape()](Context& back, const Tensor& grad) {
                                return std::vector<Tensor>{Gather(back, grad.Reshape(flat), sorted)};
                              });
}

Var CombineExperts(Context& context, const Var& y, const Var& weight) {
  constexpr std::string_view kEquation = "BKE,BK->BE";
  const Site site = context.NextSite(OpKind::kEinsum);
  const EinsumDims parsed = ParseEinsum("CombineExperts at " + site.path, kEquation, y.shape(), weight.shape());
  if (context.interceptor != nullptr) {
    const Operand first = Activation(y), second = Activation(weight);
    const DotCall call{site, second, first, parsed.dims, kEquation};
    if (std::optional<Var> answer = context.interceptor->Dot(context, call)) {
      if (answer->value.is_meta()) return Var(Tensor::Meta({y.shape()[0], y.shape()[2]}, y.dtype()));
      return Permute(context, *answer, parsed.order);
    }
  }
  const int64_t tokens = y.shape()[0], top_k = y.shape()[1], width = y.shape()[2];
  if (y.value.is_meta()) return Var(Tensor::Meta({tokens, width}, y.dtype()));
  const Tensor rows = y.value.Contiguous(), weights = weight.value.Contiguous(), place = Counting(tokens * top_k);
  Tensor out = Tensor::Empty({tokens, width}, y.dtype());
  kernels::CombineExperts(context.pool, context.isa,
                          {RowsOf(rows), place.Data<int32_t>(), weights.Data<float>(), top_k, MutableRowsOf(out)});
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {y.node, weight.node}, [rows, weights, place, top_k](Context& back, const Tensor& grad) {
        const Tensor grad_out = grad.Contiguous();
        Tensor grad_y = Tensor::Empty(rows.shape(), rows.dtype()),
               grad_weight = Tensor::Empty(weights.shape(), DType::kF32);
        kernels::CombineExpertsBackward(back.pool, back.isa,
                                        {RowsOf(rows), RowsOf(grad_out), place.Data<int32_t>(), weights.Data<float>(),
                                         top_k, MutableRowsOf(grad_y), grad_weight.MutableData<float>()});
        return std::vector<Tensor>{grad_y, grad_weight};
      });
}

Var SpreadWeights(Context& context, const Routing& routing, int64_t experts) {
  const int64_t tokens = routing.expert.dim(0), top_k = routing.top_k();
  if (routing.expert.is_meta()) return Var(Tensor::Meta({tokens, experts}, DType::kF32));
  Tensor out = Tensor::Zeros({tokens, experts}, DType::kF32);
  const Tensor weight = routing.weight.value.Contiguous();
  const auto place = [top_k, experts](const int32_t* expert, int64_t i) { return i / top_k * experts + expert[i]; };
  for (int64_t i = 0; i < weight.size(); ++i) {
    out.MutableData<float>()[place(routing.expert.Data<int32_t>(), i)] = weight.Data<float>()[i];
  }
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {routing.weight.node}, [expert = routing.expert, place](Context&, const Tensor& grad) {
        const Tensor dense = grad.Contiguous();
        Tensor grad_weight = Tensor::Empty(expert.shape(), DType::kF32);
        for (int64_t i = 0; i < expert.size(); ++i) {
          grad_weight.MutableData<float>()[i] = dense.Data<float>()[place(expert.Data<int32_t>(), i)];
        }
        return std::vector<Tensor>{grad_weight};
      });
}

namespace {

// Where in [B, T, E, C] each place (token, j) sits; -1: dropped.
std::vector<int64_t> SeatOfPlaces(const Tensor& expert, int64_t batch, int64_t experts, int64_t capacity) {
  std::vector<int64_t> seats(static_cast<size_t>(expert.size()), -1);
  const int64_t per_row = expert.size() / batch, top_k = expert.dim(1);
  const int32_t* chosen = expert.Data<int32_t>();
  for (int64_t row = 0; row < batch; ++row) {
    std::vector<int64_t> used(static_cast<size_t>(experts), 0);
    for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
      const int64_t seat = used[static_cast<size_t>(chosen[i])]++;
      if (seat < capacity) seats[static_cast<size_t>(i)] = (i / top_k * experts + chosen[i]) * capacity + seat;
    }
  }
  return seats;
}

}  // namespace

Seats SeatTokens(Context& context, const Routing& routing, int64_t batch, int64_t experts, int64_t capacity) {
  const int64_t tokens = routing.expert.dim(0);
  if (batch < 1 || tokens % batch != 0) ThrowUsage("SeatTokens: {} tokens in {} rows", tokens, batch);
  const Shape shape{batch, tokens / batch, experts, capacity};
  if (routing.expert.is_meta()) return {Tensor::Meta(shape, DType::kF32), Var(Tensor::Meta(shape, DType::kF32))};
  std::vector<int64_t> seats = SeatOfPlaces(routing.expert, batch, experts, capacity);
  Seats result{Tensor::Zeros(shape, DType::kF32), {}};
  Tensor weighted = Tensor::Zeros(shape, DType::kF32);
  const Tensor weight = routing.weight.value.Contiguous();
  for (size_t i = 0; i < seats.size(); ++i) {
    if (seats[i] < 0) continue;
    result.taken.MutableData<float>()[seats[i]] = 1;
    weighted.MutableData<float>()[seats[i]] = weight.Data<float>()[i];
  }
  result.weight = Var(weighted);
  if (context.tape == nullptr) return result;
  result.weight =
      context.tape->Record(std::move(weighted), {routing.weight.node},
                           [seats = std::move(seats), places = routing.expert.shape()](Context&, const Tensor& grad) {
                             const Tensor dense = grad.Contiguous();
                             Tensor grad_weight = Tensor::Zeros(places, DType::kF32);
                             for (size_t i = 0; i < seats.size(); ++i) {
                               if (seats[i] >= 0) grad_weight.MutableData<float>()[i] = dense.Data<float>()[seats[i]];
                             }
                             return std::vector<Tensor>{grad_weight};
                           });
  return result;
}

}  // namespace octavo::ops
