#include "octavo/data/packed_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "octavo/base/error.h"

namespace octavo::data {
namespace {

// The next token: of sequence `sequence` of the unit at `index` of the order of `pass`.
struct Position {
  int64_t pass = 0, index = 0, sequence = 0, token = 0;
};

class PackedSource : public BatchSource {
 public:
  PackedSource(std::shared_ptr<const Corpus> corpus, const UnitOrder& order, const PackOptions& options)
      : corpus_(std::move(corpus)), order_(order), options_(options) {}

  bool Done() override { return !Advance(); }

  Batch Next() override {
    if (!Advance()) {
      throw Error(ErrorCode::kJob, fmt::format("the data ended after {} pass{}", at_.pass, at_.pass == 1 ? "" : "es"),
                  "raise num_epoch, set data_repeat=true, or lower steps");
    }
    Batch batch = EmptyBatch(options_.rows, options_.length);
    for (int64_t row = 0; row < options_.rows && Advance(); ++row) FillRow(batch, row);
    return batch;
  }

  std::string State() const override {
    const nlohmann::json state = {{"source", "files"},
                                  {"version", 1},
                                  {"pass", at_.pass},
                                  {"index", at_.index},
                                  {"sequence", at_.sequence},
                                  {"token", at_.token},
                                  {"data", corpus_->fingerprint()}};
    return state.dump();
  }

  void Restore(const std::string& text) override {
    const nlohmann::json state = nlohmann::json::parse(text, nullptr, false);
    const auto number = [&](const char* name) {
      if (!state.is_object() || !state.contains(name) || !state[name].is_number_integer()) Fail(text);
      return state[name].get<int64_t>();
    };
    const Position at{number("pass"), number("index"), number("sequence"), number("token")};
    if (number("version") != 1 || !state.contains("data") || !state["data"].is_string()) Fail(text);
    if (state["data"].get<std::string>() != corpus_->fingerprint()) {
      throw Error(ErrorCode::kUsage, "the data is not the data that this run was trained on",
                  "files, their order, the tokenizer or its options differ; give the same ones, or start another run");
    }
    if (at.pass < 0 || at.index < 0 || at.index > order_.size() || at.sequence < 0 || at.token < 0) Fail(text);
    at_ = at;
    loaded_ = false;
    if (at.sequence == 0 && at.token == 0) return;
    if (at.index == order_.size() || !Load()) Fail(text);
    if (at.sequence >= Count() || at.token >= Targets(at.sequence)) Fail(text);
  }

  std::string Describe() const override {
    std::string text = corpus_->description();
    if (order_.held_out() > 0) text += fmt::format(", {} held out", order_.held_out());
    return text;
  }

 private:
  [[noreturn]] static void Fail(const std::string& text) {
    throw Error(ErrorCode::kFile, fmt::format("not a position in this data: {}", text.substr(0, 200)));
  }

  int64_t Count() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t Targets(int64_t sequence) const {
    return static_cast<int64_t>(sequences_[static_cast<size_t>(sequence)].size()) - 1;
  }

  // Reads the unit at the position; false when it belongs to the other part.
  bool Load() {
    const int64_t unit = order_.At(at_.pass, at_.index);
    sequences_.clear();
    if (unit >= 0) sequences_ = corpus_->Read(unit);
    loaded_ = true;
    return unit >= 0;
  }

  // Moves to the next token that is followed by a target; false at the end of the data.
  bool Advance() {
    for (bool seen_pass = false;;) {
      if (options_.passes >= 0 && at_.pass >= options_.passes) return false;
      if (at_.index == order_.size()) {
        if (seen_pass) ThrowFile("the data holds no document of at least two tokens ({})", corpus_->description());
        seen_pass = true;
        at_ = {at_.pass + 1, 0, 0, 0};
        loaded_ = false;
        continue;
      }
      if (!loaded_) Load();
      if (at_.sequence < Count()) return true;
      at_ = {at_.pass, at_.index + 1, 0, 0};
      loaded_ = false;
    }
  }

  // Behind the current sequence, and behind its unit if it was the last one.
  void Leave() {
    at_ = {at_.pass, at_.index, at_.sequence + 1, 0};
    if (at_.sequence < Count()) return;
    at_ = {at_.pass, at_.index + 1, 0, 0};
    loaded_ = false;
  }

  void FillRow(Batch& batch, int64_t row) {
    int64_t filled = 0;
    for (int32_t segment = 1; filled < options_.length && Advance(); ++segment) {
      if (options_.most_segments > 0 && segment > options_.most_segments) break;
      filled += PutSegment(batch, row * options_.length + filled, options_.length - filled, segment);
      if (!options_.packing) break;
    }
  }

  // Puts as much of the current sequence as fits and moves behind it.
  int64_t PutSegment(Batch& batch, int64_t begin, int64_t room, int32_t segment) {
    const Sequence& sequence = sequences_[static_cast<size_t>(at_.sequence)];
    const int64_t left = Targets(at_.sequence) - at_.token, count = std::min(left, room);
    const int32_t* tokens = sequence.data() + at_.token;
    std::copy_n(tokens, count, batch.inputs.MutableData<int32_t>() + begin);
    std::copy_n(tokens + 1, count, batch.targets.MutableData<int32_t>() + begin);
    for (Tensor* position : {&batch.inputs_position, &batch.targets_position}) {
      int32_t* values = position->MutableData<int32_t>() + begin;
      std::iota(values, values + count, 0);
    }
    for (Tensor* part : {&batch.inputs_segmentation, &batch.targets_segmentation}) {
      std::fill_n(part->MutableData<int32_t>() + begin, count, segment);
    }
    at_.token += count;
    if (count == left || (!options_.packing && options_.truncate)) Leave();
    return count;
  }

  std::shared_ptr<const Corpus> corpus_;
  UnitOrder order_;
  PackOptions options_;
  Position at_;
  bool loaded_ = false;  // sequences_ are those of the unit at at_.index
  std::vector<Sequence> sequences_;
};

}  // namespace

std::unique_ptr<BatchSource> MakePackedSource(std::shared_ptr<const Corpus> corpus, const UnitOrder& order,
                                              const PackOptions& options) {
  return std::make_unique<PackedSource>(std::move(corpus), order, options);
}

}  // namespace octavo::data
