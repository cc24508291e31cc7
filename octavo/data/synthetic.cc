#include "octavo/data/synthetic.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"

namespace octavo::data {
namespace {

// Segments of every row: boundaries at the positions with the smallest scores.
Tensor Segments(int64_t rows, int64_t length, int64_t most_segments) {
  Tensor result = Tensor::Empty(Shape({rows, length}), DType::kI32);
  int32_t* segment = result.MutableData<int32_t>();
  std::fill_n(segment, rows * length, 1);
  if (most_segments < 2 || length < 2) return result;
  const auto most = static_cast<int32_t>(std::min(most_segments, length));
  const RngKey key = RngKey::FromSeed(42), counts = key.Split(0), scores = key.Split(1);
  std::vector<int64_t> order(static_cast<size_t>(length - 1));
  for (int64_t row = 0; row < rows; ++row) {
    const auto index = static_cast<uint64_t>(row);
    const int32_t parts = RandomInteger(counts, index, static_cast<uint64_t>(rows), 2, most + 1);
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](int64_t at) {
      return Uniform(scores, index * static_cast<uint64_t>(length - 1) + static_cast<uint64_t>(at));
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) < score(b); });
    std::sort(order.begin(), order.begin() + (parts - 1));
    for (int32_t part = 1; part < parts; ++part) {
      for (int64_t at = order[static_cast<size_t>(part - 1)] + 1; at < length; ++at) segment[row * length + at] += 1;
    }
  }
  return result;
}

class SyntheticSource : public BatchSource {
 public:
  SyntheticSource(const DataOptions& options, int64_t most_segments, int64_t batches)
      : options_(options), batches_(batches) {
    const int64_t rows = options.rows, length = options.length;
    batch_ = EmptyBatch(rows, length);
    const auto size = static_cast<uint64_t>(rows * (length + 1));
    const RngKey key = RngKey::FromSeed(0);
    const auto token = [&](int64_t row, int64_t at) {
      return RandomInteger(key, static_cast<uint64_t>(row * (length + 1) + at), size, 0,
                           static_cast<int32_t>(options.vocab_size));
    };
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t t = 0; t < length; ++t) {
        const int64_t at = row * length + t;
        batch_.inputs.MutableData<int32_t>()[at] = token(row, t);
        batch_.targets.MutableData<int32_t>()[at] = token(row, t + 1);
        batch_.inputs_position.MutableData<int32_t>()[at] = static_cast<int32_t>(t);
        batch_.targets_position.MutableData<int32_t>()[at] = static_cast<int32_t>(t + 1);
      }
    }
    batch_.inputs_segmentation = Segments(rows, length, most_segments);
    batch_.targets_segmentation = batch_.inputs_segmentation;
  }

  Batch Next() override {
    if (Done()) ThrowUsage("the synthetic data ended after {} batches", batches_);
    ++given_;
    return batch_;
  }
  bool Done() override { return batches_ >= 0 && given_ >= batches_; }
  std::string State() const override { return fmt::format(R"({{"source":"synthetic","batches":{}}})", given_); }
  void Restore(const std::string& text) override {
    const nlohmann::json state = nlohmann::json::parse(text, nullptr, false);
    if (!state.is_object() || state.value("source", nlohmann::json()) != "synthetic" || !state.contains("batches") ||
        !state["batches"].is_number_unsigned()) {
      ThrowUsage("the saved data position {} is not one of dataset_type=synthetic", text.substr(0, 200));
    }
    given_ = state["batches"].get<int64_t>();
  }
  std::string Describe() const override {
    return fmt::format("synthetic, one block of {} x {} random tokens below {}", options_.rows, options_.length + 1,
                       options_.vocab_size);
  }

 private:
  DataOptions options_;
  int64_t batches_, given_ = 0;
  Batch batch_;
};

}  // namespace

std::unique_ptr<BatchSource> MakeSyntheticSource(const DataOptions& options, int64_t most_segments, int64_t batches) {
  return std::make_unique<SyntheticSource>(options, most_segments, batches);
}

}  // namespace octavo::data
