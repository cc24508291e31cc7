// The files that go along with a model when it is converted: tokenizer, chat template, generation config. The readers
// of stored_model.h locate them here; the converter changes them for tokenizer_path=…. What they say is for text/.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/weights/stored_model.h"

namespace octavo::weights {

// Files of a model folder that belong to its weights.
std::vector<CarriedFile> CarriedIn(const std::filesystem::path& folder);
CarriedFile CarriedFrom(std::string name, const std::filesystem::path& path);

// Makes the tokenizer at `path` the model's: a folder that holds one, a tokenizer or GGUF file, or the word "bytes".
// Its files, and what says how to use it, are carried in place of those of another. False: there is none and nothing
// was changed.
bool UseTokenizer(StoredModel& model, const std::filesystem::path& path);
// The same for a model that is one file: what is in its folder.
bool UseTokenizerBeside(StoredModel& model);

// Whether a file of this name may be carried, and whether such a file is a tokenizer.
bool IsCarriedName(std::string_view name);
bool IsTokenizerName(std::string_view name);
// Whether a checkpoint made of the model will have its tokenizer: as a file, or `bytes` by the run's settings.
bool CarriesTokenizer(const StoredModel& model);

}  // namespace octavo::weights
