#include "octavo/nn/embedder.h"

#include "octavo/ops/embedding.h"

namespace octavo::nn {

Embedder::Embedder(const Builder& builder, std::string_view name, int64_t count, int64_t width, bool as_product)
    : name_(name), dtype_(builder.dtype()), as_product_(as_product) {
  // Variance 1 / width: the reference counts the width as the fan of a table.
  table_ = builder.Child(name).Make("embedding", {count, width}, Init::Normal(width));
}

ops::Var Embedder::operator()(ops::Context& context, const Tensor& ids) const {
  const ops::Scope scope(context, name_);
  return ops::Embedding(context, *table_, ids, dtype_, as_product_);
}

}  // namespace octavo::nn
