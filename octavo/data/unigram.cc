#include "octavo/data/unigram.h"

#include <cmath>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/data/open_files.h"

namespace octavo::data {
namespace {

// How often each token is a target; the sum is at the end.
int64_t CountTargets(BatchSource& source, int64_t most, std::vector<int64_t>& counts) {
  int64_t total = 0;
  while (total < most && !source.Done()) {
    const Batch batch = source.Next();
    const auto targets = batch.targets.Values<int32_t>(), segments = batch.targets_segmentation.Values<int32_t>();
    for (size_t i = 0; i < targets.size(); ++i) {
      if (segments[i] == 0) continue;
      ++counts[static_cast<size_t>(targets[i])];
      ++total;
    }
  }
  return total;
}

}  // namespace

UnigramEntropy MeasureUnigram(BatchSource& train, BatchSource& held_out, int64_t vocab_size, int64_t most_tokens) {
  std::vector<int64_t> seen(static_cast<size_t>(vocab_size)), asked(static_cast<size_t>(vocab_size));
  UnigramEntropy result;
  result.train_tokens = CountTargets(train, most_tokens, seen);
  result.eval_tokens = CountTargets(held_out, most_tokens, asked);
  double sum = 0;
  for (size_t id = 0; id < seen.size(); ++id) {
    if (asked[id] == 0) continue;
    const double share = static_cast<double>(seen[id] + 1) / static_cast<double>(result.train_tokens + vocab_size);
    sum -= static_cast<double>(asked[id]) * std::log(share);
  }
  if (result.eval_tokens > 0) result.nats = sum / static_cast<double>(result.eval_tokens);
  return result;
}

UnigramEntropy MeasureUnigram(const Settings& settings, const DataOptions& options) {
  const std::unique_ptr<BatchSource> held_out = OpenEvalFiles(settings, options);
  if (held_out == nullptr) {
    throw Error(ErrorCode::kUsage, "there is no held-out data to measure on",
                "give eval_data_files=FILE or eval_fraction=0.05");
  }
  const std::unique_ptr<BatchSource> train = OpenTrainFiles(settings, options, 1);
  return MeasureUnigram(*train, *held_out, options.vocab_size);
}

}  // namespace octavo::data
