#include "octavo/nn/linear.h"

#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"

namespace octavo::nn {

Init DenseInit(const Shape& in, double scale) { return Init::TruncatedNormal(in.size(), scale); }

Linear::Linear(const Builder& builder, std::string_view name, const Shape& in, const Shape& out, const Init& init,
               const LinearOptions& options)
    : name_(name), contracted_(in.rank()), options_(options) {
  const Builder own = builder.Child(name);
  std::vector<int64_t> dims(in.dims().begin(), in.dims().end());
  dims.insert(dims.end(), out.dims().begin(), out.dims().end());
  kernel_ = own.Make("kernel", Shape(dims), init);
  if (options.bias) bias_ = own.Make("bias", out, Init::Zeros());
}

ops::Var Linear::operator()(ops::Context& context, const ops::Var& x) const {
  const ops::Scope scope(context, name_);
  const ops::Var y = ops::Project(context, x, *kernel_, contracted_, options_.save_name);
  return bias_ == nullptr ? y : ops::BiasAdd(context, y, *bias_);
}

std::vector<ops::Var> Linear::Each(ops::Context& context, const ops::Var& x, std::span<const Linear* const> layers) {
  std::vector<ops::Branch> branches;
  for (const Linear* layer : layers) {
    branches.push_back({layer->name_, *layer->kernel_, layer->contracted_, layer->options_.save_name});
  }
  std::vector<ops::Var> results = ops::ProjectEach(context, x, branches);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]->bias_ == nullptr) continue;
    const ops::Scope scope(context, layers[i]->name_);
    results[i] = ops::BiasAdd(context, results[i], *layers[i]->bias_);
  }
  return results;
}

}  // namespace octavo::nn
