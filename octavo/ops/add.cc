#include "octavo/ops/add.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

constexpr int64_t kGrain = 4096;

// out[i] = f(a[i], b[i]) in f32, for f32 and bf16 tensors of equal shape and type.
template <typename F>
Tensor Map(Context& context, const char* op, const Tensor& a, const Tensor& b, F f) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    ThrowUsage("{}: {} and {} differ", op, a.ToString(), b.ToString());
  }
  if (a.is_meta() || b.is_meta()) return Tensor::Meta(a.shape(), a.dtype());
  const Tensor x = a.Contiguous(), y = b.Contiguous();
  Tensor out = Tensor::Empty(a.shape(), a.dtype());
  if (a.dtype() == DType::kF32) {
    const float *p = x.Data<float>(), *q = y.Data<float>();
    float* r = out.MutableData<float>();
    context.pool.ParallelFor(a.size(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) r[i] = f(p[i], q[i]);
    });
  } else if (a.dtype() == DType::kBF16) {
    const uint16_t *p = x.Data<uint16_t>(), *q = y.Data<uint16_t>();
    uint16_t* r = out.MutableData<uint16_t>();
    context.pool.ParallelFor(a.size(), kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) r[i] = F32ToBF16(f(BF16ToF32(p[i]), BF16ToF32(q[i])));
    });
  } else {
    ThrowUsage("{}: expected f32 or bf16, found {}", op, NameOf(a.dtype()));
  }
  return out;
}

Tensor MultiplyTensors(Context& context, const Tensor& a, const Tensor& b) {
  return Map(context, "Multiply", a, b, [](float x, float y) { return x * y; });
}

}  // namespace

Tensor AddTensors(Context& context, const Tensor& a, const Tensor& b) {
  return Map(context, "Add", a, b, [](float x, float y) { return x + y; });
}

Var Add(Context& context, const Var& a, const Var& b) {
  Tensor out = AddTensors(context, a.value, b.value);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {a.node, b.node}, [](Context&, const Tensor& grad) {
    return std::vector<Tensor>{grad, grad};
  });
}

Var Multiply(Context& context, const Var& a, const Var& b) {
  Tensor out = MultiplyTensors(context, a.value, b.value);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {a.node, b.node}, [x = a.value, y = b.value](Context& back, const Tensor& grad) {
        return std::vector<Tensor>{MultiplyTensors(back, grad, y), MultiplyTensors(back, grad, x)};
      });
}

Var Relu(Context& context, const Var& x) {
  const auto relu = [](float value, float gate) { return gate > 0.0f ? value : 0.0f; };
  Tensor out = Map(context, "Relu", x.value, x.value, relu);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node}, [value = x.value, relu](Context& back, const Tensor& grad) {
    return std::vector<Tensor>{Map(back, "Relu", grad, value, relu)};
  });
}

}  // namespace octavo::ops
