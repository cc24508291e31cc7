// How far a converted model's distributions lie from its source's on some text, and which parts of the model the
// difference comes from. What max_kl is checked against.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "octavo/weights/load_model.h"

namespace octavo::convert {

struct Divergence {
  double kl = 0, error = 0;  // KL(source || target) per token in nats, and its standard error
  int64_t tokens = 0;
  bool equal = false;  // every logit, bit for bit
  // The modules with the largest KL when they alone are quantized; only when KL is over the budget.
  std::vector<std::pair<std::string, double>> parts;
};

// Loads both models. The source runs as it would without being converted: floats, under its own recipe.
Divergence MeasureDivergence(const weights::StoredModel& source, const weights::StoredModel& target,
                             const std::vector<int32_t>& tokens, double budget, ThreadPool& pool, kernels::Isa isa);

}  // namespace octavo::convert
