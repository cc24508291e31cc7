// How much arithmetic a training step is, counted as the reference counts it, so that its TFLOP/s can be compared:
// three times the forward matmuls, causal attention at half, the output head once, lookups and norms not at all.
#pragma once

#include <cstdint>

#include "octavo/models/model_config.h"

namespace octavo::train {

struct StepFlops {
  double learnable = 0;  // matmuls with weights, 1e12
  double attention = 0;  // 1e12
  double total() const { return learnable + attention; }
};

StepFlops FlopsOfStep(const models::ModelConfig& config, int64_t rows, int64_t length);

}  // namespace octavo::train
