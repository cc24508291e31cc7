// Frozen weights on their way from the file to what products stream: one token runs through the model, every product
// packs its weight in the form it needs, and the codes as they were loaded are dropped. After that a weight exists once
// and never as floats. Called once after loading, before the runner takes its first step.
#pragma once

#include <cstdint>

#include "octavo/engine/model_runner.h"
#include "octavo/quant/provider.h"

namespace octavo::engine {

struct PackedModel {
  int64_t packed = 0;  // weights that live in panels now
  int64_t kept = 0;    // frozen weights whose products take the codes as they are
  int64_t bytes = 0;   // of panels, and of all parameters that are left
};

// `provider` answers parts.interceptor's dots, directly or behind others. A plan in which the scale of an activation
// covers the whole batch is refused, unless allowed: what one request gets would depend on the others.
PackedModel PackWeights(const RunnerParts& parts, quant::Provider& provider, bool allow_batch_coupled = false);

}  // namespace octavo::engine
