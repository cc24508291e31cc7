// The loss of a model that knows only how often each token occurs: the first bar that a language model must pass.
// Printed beside the held-out loss.
#pragma once

#include <cstdint>

#include "octavo/data/source.h"

namespace octavo::data {

struct UnigramEntropy {
  double nats = 0;  // mean over the held-out targets of -log p(token), p from the training targets with one added each
  int64_t train_tokens = 0, eval_tokens = 0;
};

// Counts at most `most_tokens` targets of either source, which it reads on from where they are.
UnigramEntropy MeasureUnigram(BatchSource& train, BatchSource& held_out, int64_t vocab_size,
                              int64_t most_tokens = 10'000'000);

// Of the data that the settings name: one pass over the training data, then the held-out data. A usage Error when there
// is no held-out data.
UnigramEntropy MeasureUnigram(const Settings& settings, const DataOptions& options);

}  // namespace octavo::data
