// Where batches come from. A source is a function of its files, its settings and its position: what it gives does not
// depend on threads or ranks, and a position can be saved and restored exactly. Used by the trainer and by evaluation;
// it knows nothing of models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "octavo/config/settings.h"
#include "octavo/data/batch.h"

namespace octavo::data {

struct DataOptions {
  int64_t rows = 0;        // of the global batch
  int64_t length = 0;      // max_target_length
  int64_t vocab_size = 0;  // a token id that is not below it is an error
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next batch. After the last one (see Done) an error.
  virtual Batch Next() = 0;
  // True when there is no next batch. A training source that repeats its data never ends.
  virtual bool Done() = 0;

  // The position as JSON text: after Restore(State()) a source of the same data gives the same batches.
  virtual std::string State() const = 0;
  // Throws a usage Error when the position belongs to other data.
  virtual void Restore(const std::string& state) = 0;

  // One line for the start of a run: files, documents, tokenizer.
  virtual std::string Describe() const = 0;
};

// The training data that the settings name.
std::unique_ptr<BatchSource> OpenTrainData(const Settings& settings, const DataOptions& options);

// The held-out data, once and in order; null when the settings name none. Open it anew, or Restore its first State, for
// every evaluation. The last batch is filled up with padding.
std::unique_ptr<BatchSource> OpenEvalData(const Settings& settings, const DataOptions& options);

}  // namespace octavo::data
