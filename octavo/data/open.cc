#include "octavo/base/error.h"
#include "octavo/data/source.h"
#include "octavo/data/synthetic.h"

namespace octavo::data {
namespace {

void CheckOptions(const DataOptions& options) {
  if (options.rows < 1 || options.length < 1 || options.vocab_size < 1) {
    ThrowUsage("data of {} rows of {} tokens below {}: each must be at least 1", options.rows, options.length,
               options.vocab_size);
  }
}

}  // namespace

std::unique_ptr<BatchSource> OpenTrainData(const Settings& settings, const DataOptions& options) {
  CheckOptions(options);
  const std::string type = settings.Text("dataset_type");
  if (type == "synthetic") {
    return MakeSyntheticSource(options, settings.Bool("packing") ? settings.Int("max_segments_per_seq") : 1);
  }
  throw Error(ErrorCode::kUsage, fmt::format("dataset_type={} needs dataset_path", type),
              fmt::format("found '{}'; for a first run use dataset_type=synthetic, for your own text dataset_type=hf "
                          "hf_path=json hf_train_files=FILE.jsonl",
                          settings.Text("dataset_path")));
}

std::unique_ptr<BatchSource> OpenEvalData(const Settings& settings, const DataOptions& options) {
  if (settings.Text("dataset_type") == "synthetic") return OpenTrainData(settings, options);
  return nullptr;
}

}  // namespace octavo::data
