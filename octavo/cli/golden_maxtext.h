// Reference data of MaxText's training: a folder of cases, each a JSON file with its configuration and a safetensors
// file with parameters, batch, logits, gradients, parameters after a step and the metrics of several steps; and site
// tables (sites.json). Each case is trained here as the product trains, from the same parameters on the same batch.
// Used by the golden runner only.
//
// golden_maxtext.cc finds the cases, golden_maxtext_case.cc reads one, golden_maxtext_train.cc trains it,
// golden_maxtext_judge.cc compares, golden_maxtext_sites.cc compares plans with the site tables,
// golden_maxtext_engine.cc runs the recordings of the serving engine.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/config/settings.h"
#include "octavo/quant/rule.h"
#include "octavo/weights/source.h"

namespace octavo {

struct MaxTextCase {
  std::string name;
  std::filesystem::path folder;
  nlohmann::json json;
  weights::Source tensors;  // of the case's own file
  weights::Source init;     // initial parameters, names without "params/"

  const nlohmann::json& config() const { return json.at("config"); }
  bool Has(const std::string& tensor) const { return tensors.tensors.contains(tensor); }
  Tensor Read(const std::string& tensor) const;  // a missing name is a file error
  // By hand on the reference's side: "@nosr", "@force_aqt_fp8".
  std::vector<std::string> forced() const;
};

MaxTextCase ReadMaxTextCase(const std::filesystem::path& json_file);

// The settings of a case: every key of its configuration that is a key of ours, and over them what its command line
// said. Derived numbers (emb_dim) stand for what they are derived from (base_emb_dim).
Settings SettingsOfMaxText(const nlohmann::json& config, const std::vector<std::string>& overrides,
                           const std::string& where);

// What a case's recipe resolves to. Forced configurations replace parts of it.
struct MaxTextRecipe {
  std::vector<quant::Rule> rules;  // none: float
  bool refused = false;            // the product has no such recipe, where the reference silently trains in float
  bool random_gradient = false;    // its gradients depend on the reference's random numbers
};
MaxTextRecipe RecipeOfMaxText(const Settings& settings, const std::vector<std::string>& forced,
                              const std::filesystem::path& folder);

// How far numbers may be apart, by the arithmetic of a recipe and never by case (docs/decisions/0010). Float and what
// the reference reproduces itself: absolute distances. Where a rounding may fall the other way, distances are measured
// in units of what quantization does: the distance of our float model to the same recording.
struct MaxTextTolerance {
  double logits = 1e-5;       // absolute
  double gradients = 1e-6;    // absolute
  double loss = 1e-5;         // absolute, of one step
  double norms = 1e-5;        // relative
  double least_share = 1;     // of positions whose logits agree to 1e-5
  bool to_float = false;      // logits and gradients are measured in units of the float model's distance instead:
  double logits_units = 0;    // mean of the logits
  double gradient_units = 0;  // relative distance of all gradients
};
MaxTextTolerance ToleranceOf(const MaxTextRecipe& recipe);

// What our training of a case gave. Trees have MaxText's names and layout, without "params/".
struct MaxTextRun {
  Tensor logits;  // undefined when the case has none
  std::map<std::string, Tensor> gradients, step1;
  std::map<std::string, Tensor> step1_of_recorded;     // the optimizer alone, on the recorded gradients
  std::map<std::string, std::vector<double>> metrics;  // by name, one value per step
};
// Sample 0 starts from the recorded parameters. In the others every parameter that enters no quantized product is moved
// by one last bit, up or down at random: it moves the float model as far as the reference's compiler flags do (logits
// by 10⁻⁶), and with it the choices that hang on a last bit.
inline constexpr int kMaxTextSamples = 8;
MaxTextRun TrainMaxTextCase(const MaxTextCase& one, const Settings& settings, const MaxTextRecipe& recipe,
                            ThreadPool& pool, int sample = 0);

// Findings: problems, and one line that says how well it agreed.
struct MaxTextVerdict {
  std::vector<std::string> problems;
  std::string summary;  // "logits 1.9e-06 (32 of 32 positions to 1e-5), gradients 6.0e-08, losses 4.8e-07"
};
// `yardstick` is our run of the same case in float; looked at when the tolerance asks for it.
struct MaxTextComparison {
  const MaxTextCase& one;
  const Settings& settings;
  const MaxTextRecipe& recipe;
  const MaxTextRun* yardstick;
};
MaxTextVerdict JudgeMaxTextLogits(const MaxTextComparison& comparison, const MaxTextRun& run);
// Gradients, the first step, and the metrics of all steps.
MaxTextVerdict JudgeMaxTextTraining(const MaxTextComparison& comparison, const MaxTextRun& run);

// A recording of the engine: file and verdict in one, since nothing is shared with training.
MaxTextVerdict RunMaxTextEngine(const std::filesystem::path& file, ThreadPool& pool);

// One entry per case of a site table.
struct MaxTextSites {
  std::string name, summary;
  std::vector<std::string> problems;
};
std::vector<MaxTextSites> CompareMaxTextSites(const std::filesystem::path& sites_json);

}  // namespace octavo
