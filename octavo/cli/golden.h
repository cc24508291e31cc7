// The golden runner: every case of a folder of reference data goes through the library, and what comes out is compared
// with what the reference library gave. Driven by the data: a kind of case is known by its call and its arguments,
// never by its name, and a kind that nobody knows counts as failed.
//
// To add a kind: a function pair in a golden_<group>.cc, its list in golden_kinds.cc.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/base/log.h"
#include "octavo/base/thread_pool.h"
#include "octavo/cli/golden_case.h"
#include "octavo/cli/golden_compare.h"

namespace octavo {

// What a kind reports about one case. A case passes when nothing failed, and every output, result and error that it has
// was checked: an output that a kind forgets is a failure.
class GoldenCheck {
 public:
  explicit GoldenCheck(const GoldenCase& golden) : case_(golden) {}

  void Fail(std::string problem) { failures_.push_back(std::move(problem)); }

  // Compares as the case asks for this output: bits, int_dot, dot, a tolerance, or nothing (information). `format` says
  // what codes mean where the index has no note.
  void Output(const std::string& name, const Tensor& actual, std::optional<Format> format = std::nullopt);
  // For a kind with a rule of its own: takes the result of a comparison.
  void Output(const std::string& name, const Mismatch& mismatch);
  // True when the case asks for no comparison of this output; it counts as checked then.
  bool IsInformation(const std::string& name) const;

  // The case's `results` must equal this.
  void Results(const nlohmann::json& actual);
  // For results that a kind compares piece by piece: notes that they were compared.
  void ResultsChecked() { results_checked_ = true; }
  // The library raised an error: `action` must throw an Error.
  void ExpectError(FunctionRef<void()> action);

  // Everything that failed, with what was forgotten.
  std::vector<std::string> Finish() const;

 private:
  const GoldenCase& case_;
  std::vector<std::string> failures_;
  std::set<std::string> checked_;
  bool results_checked_ = false, error_checked_ = false;
};

struct GoldenKind {
  std::string_view name;  // for messages
  bool (*accepts)(const GoldenCase&);
  void (*run)(const GoldenCase&, ThreadPool&, GoldenCheck&);
};

// All kinds, in the order in which they are asked.
std::vector<GoldenKind> GoldenKinds();
std::vector<GoldenKind> FormatKinds();       // golden_formats.cc: code tables, casts, bounds
std::vector<GoldenKind> ThreefryKinds();     // golden_threefry.cc: random numbers
std::vector<GoldenKind> ArrayKinds();        // golden_arrays.cc: quantized arrays
std::vector<GoldenKind> DotKinds();          // golden_dots.cc: dots, einsum, ragged dots
std::vector<GoldenKind> TrainingDotKinds();  // golden_training_dots.cc: the same with gradients
std::vector<GoldenKind> AqtKinds();          // golden_aqt.cc: AQT dots, frozen weights
std::vector<GoldenKind> Fp8Kinds();          // golden_fp8.cc: delayed scaling
std::vector<GoldenKind> SparsityKinds();     // golden_sparsity.cc: masks, schedules, KV caches
std::vector<GoldenKind> RuleKinds();         // golden_rules.cc: rule matching, models under rules

// A folder that keeps its reference data in a form of its own instead of <group>.json.
struct GoldenFolderResult {
  struct Failure {
    std::string name, problem;
  };
  int64_t passed = 0;
  std::vector<Failure> failures;
  std::vector<std::string> notes;  // lines printed before the folder's own: how well numbers agreed
};

struct GoldenFolderKind {
  std::string_view name;
  bool (*accepts)(const std::filesystem::path&);
  GoldenFolderResult (*run)(const std::filesystem::path&, ThreadPool&);
};

std::vector<GoldenFolderKind> GoldenFolderKinds();
GoldenFolderKind TemplateFolderKind();    // golden_templates.cc: chat templates
GoldenFolderKind TokenizerFolderKind();   // golden_tokenizers.cc: ids, offsets, decoded text
GoldenFolderKind TokenListFolderKind();   // golden_tokenizers_lists.cc: texts and lines of ids
GoldenFolderKind HfFolderKind();          // golden_hf.cc: model folders
GoldenFolderKind GgufFolderKind();        // golden_gguf.cc: GGUF files of a model
GoldenFolderKind StoriesFolderKind();     // golden_stories.cc: llama2.c models and the text they write
GoldenFolderKind GgufBlocksFolderKind();  // golden_gguf_blocks.cc: blocks of GGML types
GoldenFolderKind MaxTextFolderKind();     // golden_maxtext.cc: training cases, site tables

// The failures of one case; empty when it passed. Errors that a kind throws are failures.
std::vector<std::string> RunGoldenCase(const GoldenCase& golden, const std::vector<GoldenKind>& kinds,
                                       ThreadPool& pool);

struct GoldenOptions {
  std::filesystem::path folder;
  bool verbose = false;  // every failing case, not only the first few
};

// Runs all groups of a folder and of the folders in it, in the order of their names; a folder in it that holds
// reference data of a form that nobody knows is one failure. Prints one line per group and, last, "N passed, M failed";
// details of failures go to the log. Returns 0, or 1 when a case failed. A malformed file of the folder itself is a
// file error, in folders inside it a failure.
int RunGolden(const GoldenOptions& options, ThreadPool& pool, Log& log,
              const std::function<void(std::string_view)>& print);

}  // namespace octavo
