// A model and its weights against what a reference library computed from them: logits, loss, gradients, a greedy
// continuation. For folders of reference data of whole models, whatever file their weights came from.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/cli/golden.h"
#include "octavo/models/model.h"
#include "octavo/weights/hf_names.h"
#include "octavo/weights/source.h"

namespace octavo {

// Adds cases to a folder's result: what throws an Error has failed.
class GoldenFolderCases {
 public:
  explicit GoldenFolderCases(GoldenFolderResult& result) : result_(result) {}

  template <typename Action>
  void Run(const std::string& name, Action action) {
    try {
      if (const Mismatch mismatch = action()) {
        Fail(name, *mismatch);
      } else {
        ++result_.passed;
      }
    } catch (const Error& error) {
      Fail(name, error.message());
    }
  }
  void Fail(const std::string& name, const std::string& problem) { result_.failures.push_back({name, problem}); }

 private:
  GoldenFolderResult& result_;
};

// The model with its weights, f32.
std::unique_ptr<models::Model> LoadGoldenModel(const models::ModelConfig& config, const weights::Source& source);

// Compares `<prefix>logits`, and with `all` also loss, greedy continuation and gradients. `pieces` give the names and
// layouts of gradients.
struct GoldenDecoderRun {
  models::Model& model;
  const std::vector<weights::HfPiece>& pieces;
  const SafetensorsFile& expected;
  std::string prefix;  // of the names of expected tensors: "", "Q8_0."
  bool all = true;
  ops::Interceptor* provider = nullptr;  // answers the dots of a model whose weights are codes
};
void RunGoldenDecoder(const GoldenDecoderRun& run, const std::string& case_prefix, ThreadPool& pool,
                      GoldenFolderCases& cases);

}  // namespace octavo
