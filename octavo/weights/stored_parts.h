// The readers behind stored_model.h, one per family of files.
#pragma once

#include "octavo/weights/hf.h"
#include "octavo/weights/stored_model.h"

namespace octavo::weights {

// stored_checkpoint.cc: a folder with manifest.json.
StoredModel FromCheckpoint(const std::filesystem::path& folder, const OpenOptions& options);

// stored_foreign.cc: what hf.h, gguf.h and llama2c.h opened.
StoredModel FromForeign(HfModel model, StoredKind kind, const std::filesystem::path& path);

}  // namespace octavo::weights
