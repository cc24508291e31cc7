// The runner of a real model: any architecture of models/, in float or under a plan's provider, with its cache in
// pages. The caller owns model, provider and threads; they must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "octavo/engine/runner.h"
#include "octavo/models/model.h"
#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/state.h"

namespace octavo::engine {

struct RunnerParts {
  models::Model& model;
  ops::Interceptor* interceptor = nullptr;  // provider of the plan, possibly wrapped by LoRA; null: float
  const ops::StateStore* state = nullptr;   // of recipes with frozen scales
  ThreadPool& pool;
  kernels::Isa isa;
};

struct RunnerOptions {
  int64_t context_length = 0;  // 0: the model's max_target_length
  ops::KvFormat kv = {};       // how keys and values are stored
  int64_t kv_bytes = 0;        // budget of the cache; 0: `sequences` whole contexts
  int64_t sequences = 8;
  bool prefix_cache = true;
};

std::unique_ptr<Runner> MakeRunner(const RunnerParts& parts, const RunnerOptions& options);

// Bytes of one page over all layers.
int64_t PageBytes(models::Model& model, const ops::KvFormat& format);

}  // namespace octavo::engine
