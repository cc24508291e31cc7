// From settings to a source over files. Between source.h, which everyone uses, and the parts it is made of; also used
// by the entropy, which wants the training data once and without an order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octavo/data/source.h"

namespace octavo::data {

// The files that the settings name for training or evaluation. Empty `names`: none.
struct NamedFiles {
  std::vector<std::string> names;
  std::string prefix;         // a folder
  std::string key;            // the setting that named them
  std::string kind = "auto";  // json, text, auto
  std::vector<std::string> columns;
};

// Throws the usage Errors for a dataset_type that is not read, or that lacks its files.
NamedFiles TrainFiles(const Settings& settings);
NamedFiles EvalFiles(const Settings& settings);

// Training data, in the order of the settings, for `passes` (-1: as the settings say).
std::unique_ptr<BatchSource> OpenTrainFiles(const Settings& settings, const DataOptions& options, int64_t passes = -1);
// Held-out data once: its own files, or the held-out share of the training files; null when there is neither.
std::unique_ptr<BatchSource> OpenEvalFiles(const Settings& settings, const DataOptions& options);

}  // namespace octavo::data
