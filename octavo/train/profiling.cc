#include "octavo/train/profiling.h"

#include <memory>

#include "octavo/base/progress.h"
#include "octavo/ops/context.h"
#include "octavo/ops/tape.h"
#include "octavo/tensor/dot_dims.h"

namespace octavo::train {

// `call` answers the op with the operand it is given.
template <typename Call>
std::optional<ops::Var> ProfilingInterceptor::Time(ops::Context& context, const ops::Site& site,
                                                   const ops::Operand& lhs, double macs, Call&& call) {
  if (next_ == nullptr || context.profile == nullptr) return call(lhs);
  ops::Operand marked = lhs;
  const bool on_tape = context.tape != nullptr && !lhs.quantized() && lhs.node != ops::kConstant;
  const auto start = std::make_shared<double>(0);
  if (on_tape) {
    const std::string path = site.path;
    marked.node =
        context.tape
            ->Record(lhs.tensor(), {lhs.node},
                     [start, path, macs](ops::Context& later, const Tensor& grad) {
                       if (later.profile != nullptr && *start > 0) {
                         later.profile->Add(path, "matmul", "backward", Progress::SteadySeconds() - *start, 2 * macs);
                       }
                       return std::vector<Tensor>{grad};
                     })
            .node;
  }
  const double begin = Progress::SteadySeconds();
  std::optional<ops::Var> out = call(marked);
  if (!out) return call(lhs);  // the float op takes over, and times itself
  context.profile->Add(site.path, "matmul", "forward", Progress::SteadySeconds() - begin, macs);
  if (!on_tape || out->node == ops::kConstant) return out;
  return context.tape->Record(out->value, {out->node}, [start](ops::Context&, const Tensor& grad) {
    *start = Progress::SteadySeconds();
    return std::vector<Tensor>{grad};
  });
}

std::optional<ops::Var> ProfilingInterceptor::Dot(ops::Context& context, const ops::DotCall& call) {
  const DotSize size = SizeOfDot(call.lhs.shape(), call.rhs.shape(), call.dims);
  const double macs = static_cast<double>(size.batch * size.m) * static_cast<double>(size.n * size.k);
  return Time(context, call.site, call.lhs, macs, [&](const ops::Operand& lhs) {
    return next_ == nullptr ? std::nullopt
                            : next_->Dot(context, {call.site, lhs, call.rhs, call.dims, call.equation, call.kept});
  });
}

std::optional<ops::Var> ProfilingInterceptor::RaggedDot(ops::Context& context, const ops::RaggedCall& call) {
  const double macs = static_cast<double>(call.lhs.shape().size()) * static_cast<double>(call.rhs.shape().dim(-1));
  return Time(context, call.site, call.lhs, macs, [&](const ops::Operand& lhs) {
    return next_ == nullptr ? std::nullopt : next_->RaggedDot(context, {call.site, lhs, call.rhs, call.group_sizes});
  });
}

}  // namespace octavo::train
