// octavo inspect of what training leaves: a run or one of its checkpoints. Called by the inspect verb.
#pragma once

#include <string>

#include "octavo/cli/args.h"

namespace octavo {

// Whether the path is a checkpoint, or a run with checkpoints in it.
bool IsRunOrCheckpoint(const std::string& path);

// Step, tensors, sizes, recipe and the digests of all bits; --tensors lists them, --verify reads all data.
int InspectRun(const Args& args);

}  // namespace octavo
