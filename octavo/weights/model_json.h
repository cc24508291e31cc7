// A model's configuration as one JSON object, field by field: what a checkpoint that came from elsewhere keeps, because
// its model cannot be said in the keys of a run. Read strictly: a field too many or too few may change the mathematics.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "octavo/models/model_config.h"

namespace octavo::weights {

nlohmann::ordered_json ModelToJson(const models::ModelConfig& config);

// A field that is missing, unknown, of another type or out of bounds is a file error; `where` begins it.
models::ModelConfig ModelFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace octavo::weights
