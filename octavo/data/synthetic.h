// dataset_type=synthetic: one fixed block of random tokens in every step, the same as MaxText's. For measurements and
// first runs.
#pragma once

#include <memory>

#include "octavo/data/source.h"

namespace octavo::data {

// `most_segments` ≥ 2 cuts every row into 2 … most_segments segments at random places; positions run on over them, as
// in MaxText. `batches` of them (evaluation needs an end); -1: without end.
std::unique_ptr<BatchSource> MakeSyntheticSource(const DataOptions& options, int64_t most_segments,
                                                 int64_t batches = -1);

}  // namespace octavo::data
