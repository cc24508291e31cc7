// Tables of vectors by id: tokens and trained positions; the token table may serve as the head as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/nn/parameters.h"
#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::nn {

class Embedder {
 public:
  // table [count, width]. With `as_product` the look-up is a one-hot product, and a site (iota embedding).
  Embedder(const Builder& builder, std::string_view name, int64_t count, int64_t width, bool as_product);
  ops::Var operator()(ops::Context& context, const Tensor& ids) const;  // i32 [...] -> [..., width]
  const ops::Parameter& table() const { return *table_; }

 private:
  std::string name_;
  DType dtype_;
  bool as_product_;
  ops::Parameter* table_;
};

}  // namespace octavo::nn
