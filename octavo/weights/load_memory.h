// What the parameters of a stored model will take in memory, from headers and the forward plan, before a value is read:
// so that a model that is too large is refused in a second and not killed after minutes. Used by the engine. Knows how
// parameters are held and packed, not how they are computed with.
#pragma once

#include <cstdint>

#include "octavo/weights/parameter_reader.h"

namespace octavo::weights {

struct LoadMemory {
  int64_t loaded = 0;   // all parameters as LoadModel leaves them
  int64_t serving = 0;  // with panels in the place of codes, as engine::PackWeights leaves them
  int64_t peak = 0;     // the most until then: a parameter on its way, a layer that has codes and panels
};

LoadMemory LoadMemoryOf(const ParameterReader& reader);

}  // namespace octavo::weights
