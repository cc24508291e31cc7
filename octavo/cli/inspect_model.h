// octavo inspect of model files of any kind: tensors as the files name them, formats, sizes, digests, and what
// quantization did to the weights. Called by the inspect verb; runs and checkpoints of runs are inspect_run_verb.h's.
#pragma once

#include <string>

#include "octavo/cli/args.h"

namespace octavo {

// A model folder, a GGUF file, a safetensors file, a llama2.c file; --tensors lists, --verify reads everything. Works
// for architectures that Octavo cannot run too.
int InspectModel(const Args& args);

// --quant: every quantized parameter with its format, tiles, range of scales and a histogram of them over powers of
// two.
int InspectQuant(const Args& args);

}  // namespace octavo
