// A trained tensor with its full name. Models own parameters; the optimizer and the loader walk them. A parameter that
// was frozen by a recipe holds its codes instead of floats. Gradients live on the tape, not here.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "octavo/tensor/qarray.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

struct Parameter {
  std::string name;  // "decoder/layers_0/mlp/wi_0/kernel"
  std::variant<Tensor, QArray> value;

  bool frozen() const { return std::holds_alternative<QArray>(value); }
  const Tensor& tensor() const { return std::get<Tensor>(value); }
  const QArray& qarray() const { return std::get<QArray>(value); }
  const Shape& shape() const { return frozen() ? qarray().qvalue.shape() : tensor().shape(); }
};

}  // namespace octavo::ops
