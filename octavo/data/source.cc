#include "octavo/data/source.h"

#include <optional>

#include "octavo/base/error.h"
#include "octavo/data/open_files.h"
#include "octavo/data/synthetic.h"

namespace octavo::data {
namespace {

// reuse_example_batch: the first batch in every step. The position is that of the data behind it.
class RepeatedBatch : public BatchSource {
 public:
  explicit RepeatedBatch(std::unique_ptr<BatchSource> source)
      : source_(std::move(source)), start_(source_->State()), batch_(source_->Next()) {}

  Batch Next() override { return batch_; }
  bool Done() override { return false; }
  std::string State() const override { return start_; }
  void Restore(const std::string& state) override {
    source_->Restore(state);
    batch_ = source_->Next();
    start_ = state;
  }
  std::string Describe() const override { return source_->Describe() + ", only the first batch"; }

 private:
  std::unique_ptr<BatchSource> source_;
  std::string start_;
  Batch batch_;
};

void CheckOptions(const DataOptions& options) {
  if (options.rows < 1 || options.length < 1 || options.vocab_size < 1) {
    ThrowUsage("data of {} rows of {} tokens below {}: each must be at least 1", options.rows, options.length,
               options.vocab_size);
  }
}

bool IsSynthetic(const Settings& settings) { return settings.Text("dataset_type") == "synthetic"; }

std::unique_ptr<BatchSource> OpenSynthetic(const Settings& settings, const DataOptions& options, int64_t batches) {
  if (!settings.List("data_files").empty()) TrainFiles(settings);  // says that both are given
  return MakeSyntheticSource(options, settings.Bool("packing") ? settings.Int("max_segments_per_seq") : 1, batches);
}

}  // namespace

std::unique_ptr<BatchSource> OpenTrainData(const Settings& settings, const DataOptions& options) {
  CheckOptions(options);
  std::unique_ptr<BatchSource> source =
      IsSynthetic(settings) ? OpenSynthetic(settings, options, -1) : OpenTrainFiles(settings, options);
  if (settings.Int("reuse_example_batch") > 0) source = std::make_unique<RepeatedBatch>(std::move(source));
  return source;
}

std::unique_ptr<BatchSource> OpenEvalData(const Settings& settings, const DataOptions& options) {
  CheckOptions(options);
  return IsSynthetic(settings) ? OpenSynthetic(settings, options, 1) : OpenEvalFiles(settings, options);
}

}  // namespace octavo::data
