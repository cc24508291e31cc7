// Balancing of experts without a loss: after each step the bias of an expert that got fewer tokens than the average
// grows by a fixed rate, that of a fuller one shrinks. Used by the trainer, after the optimizer.
#pragma once

#include <span>

#include "octavo/tensor/tensor.h"

namespace octavo::optim {

// bias[e] += rate * sign(mean(load) - load[e]). `load` counts the tokens of the whole batch; bias is f32 [experts].
void UpdateRoutingBias(std::span<const int64_t> load, double rate, Tensor& bias);

}  // namespace octavo::optim
