// The strict restore: every parameter of a model from a stored MaxText tree, scanned or unrolled, or an error that
// lists everything that is wrong at once. Nothing is guessed, zero-filled, truncated or transposed, and no parameter
// changes unless all of them can. The way back, for writing checkpoints that MaxText reads, stands here too. Used by
// the golden runner, trainer, converter and engine. Knows no file format.
#pragma once

#include <map>
#include <span>
#include <string>

#include "octavo/ops/parameter.h"
#include "octavo/weights/source.h"

namespace octavo::weights {

struct RestoreOptions {
  int param_scan_axis = 1;
  // Wider or narrower floats are converted to the parameter's type (one rounding to nearest even). Off: another type
  // is a fault like another shape.
  bool convert_floats = false;
};

// A file error lists every missing, superfluous, wrong-shaped, wrong-typed tensor, in the order of names. A parameter
// may lie under its own name, or in a stack of layers whose axis must be as long as the model has such layers.
void RestoreParameters(const Source& source, std::span<ops::Parameter* const> parameters,
                       const RestoreOptions& options = {});

// The same checks without reading: every parameter under its own name, to be read one at a time. Types stay as stored.
Source MatchParameters(const Source& source, std::span<ops::Parameter* const> parameters,
                       const RestoreOptions& options = {});

// Parameters, or their gradients, as a tree of MaxText: with `scanned`, layers stacked on param_scan_axis under
// "layers" (all layers 0 … n-1 of a stack must be there). Names begin with `collection`, for example "params/".
std::map<std::string, Tensor> ToMaxTextTree(const std::map<std::string, Tensor>& unrolled, bool scanned,
                                            int param_scan_axis = 1, std::string_view collection = "params/");

}  // namespace octavo::weights
