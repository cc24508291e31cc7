// What layers add to the loss besides their output, and what they counted on the way: load-balance losses and expert
// loads. The Context points at one while a loss is computed; layers append. Remat hands a layer's losses through its
// replay, so that they are counted once and differentiated like the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/ops/var.h"

namespace octavo::ops {

struct AuxLosses {
  struct ExpertLoad {
    std::string path;             // of the expert block: "decoder/moe_layers_0/DeepSeekMoeBlock_0/MoeBlock_0"
    std::vector<int64_t> tokens;  // per expert, padding included
  };
  std::vector<Var> load_balance;  // f32 scalars ([]), one per expert layer, not yet weighted
  std::vector<ExpertLoad> loads;
};

}  // namespace octavo::ops
