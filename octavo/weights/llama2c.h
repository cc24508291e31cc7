// Files of llama2.c as one of our models and its weights: small real models. Used like hf.h.
#pragma once

#include <filesystem>

#include "octavo/weights/hf.h"

namespace octavo::weights {

// f32, or int8 in groups, whose codes are kept.
HfModel OpenLlama2c(const std::filesystem::path& file);

}  // namespace octavo::weights
