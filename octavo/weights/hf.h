// Model folders as the Hugging Face hub has them: config.json, (sharded) safetensors, plain or quantized by other
// tools, as one of our models and its weights. Used by the converter, the engine, the golden runner. Tokenizers are
// text/'s business.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/tensor/qarray.h"
#include "octavo/weights/hf_config.h"
#include "octavo/weights/hf_names.h"
#include "octavo/weights/prequantized.h"
#include "octavo/weights/source.h"

namespace octavo::weights {

struct HfModel {
  HfConfig config;
  std::vector<HfPiece> pieces;     // of every parameter
  LogicalTensors tensors;          // by the names of the files
  Source source;                   // by our names, in our layout: what RestoreParameters takes. Quantized ones as f32
  std::vector<std::string> notes;  // what was left out or not read, for a printed line each

  // The codes of one of our parameters in our layout. nullopt for floats, and with a reason when ours cannot hold them.
  std::optional<QArray> Codes(const std::string& ours, std::string* reason) const;
};

// Fills in pieces, source and notes from config and tensors: the second half of every reader (gguf.h, llama2c.h too).
// A tensor that is missing, superfluous or of another shape than the configuration says: one error that lists each.
void MatchTensors(HfModel& model, const std::string& where);

HfModel OpenHf(const std::filesystem::path& folder, const std::string& config_name = "config.json");

}  // namespace octavo::weights
