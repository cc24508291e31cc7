// Recordings of MaxText's serving engine: two prompts, the second one inserted in mid-decode, eight greedy steps in two
// slots. Ours runs the same tokens through its runner; weights are frozen and packed where the recording converted
// them, and quantized in every pass where it did not.
#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/cli/golden_maxtext.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/kernels/isa.h"
#include "octavo/models/model.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/restore.h"

namespace octavo {
namespace {

// Logits in the order of the recording: the two prefills, then the steps of each slot.
struct EngineRows {
  std::vector<std::string> names;
  std::vector<std::vector<float>> ours, recorded;
};

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

int32_t Largest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class EngineCase {
 public:
  EngineCase(const MaxTextCase& one, const Settings& settings, const MaxTextRecipe& recipe, ThreadPool& pool)
      : case_(one), pool_(pool), isa_(kernels::ChooseIsa().isa), rules_(recipe.rules) {
    const models::ModelConfig config = models::ModelConfigFrom(settings);
    model_ = models::MakeModel(config);
    plan_ = weights::ForwardPlan(*model_, rules_);
    const auto sites = weights::FrozenParameters(*model_, plan_);
    weights::RestoreParameters(one.init, model_->parameters(),
                               {.param_scan_axis = static_cast<int>(settings.Int("param_scan_axis"))});
    if (one.json.value("mode", "train") != "train") {
      for (const auto& [name, site] : sites) {
        ops::Parameter* parameter = model_->parameter_set().Find(name);
        parameter->value = weights::FreezeFor(*site, parameter->tensor(), {}, pool_, isa_);
      }
    }
    provider_.emplace(plan_);
  }

  // Codes that differ from the converted checkpoint of the recording; -1: it has none.
  int64_t WrongCodes() const {
    constexpr std::string_view kPrefix = "serve/aqt/decoder/layers/", kSuffix = "/AqtDotGeneral_0/qrhs/frozen/qvalue";
    int64_t wrong = -1;
    for (const auto& [name, stored] : case_.tensors.tensors) {
      if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
      const std::string path = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
      const Tensor all = stored.read();
      wrong = std::max<int64_t>(wrong, 0);
      for (int64_t i = 0; i < all.dim(0); ++i) {
        const auto* ours = model_->parameter_set().Find(fmt::format("decoder/layers_{}/{}/kernel", i, path));
        if (ours == nullptr || !ours->frozen()) ThrowFile("{}: ours holds no codes of {}", case_.name, path);
        const auto a = all.Select(0, i).ToVector<int8_t>(), b = ours->qarray().qvalue.ToVector<int8_t>();
        for (size_t k = 0; k < a.size(); ++k) wrong += a[k] != b[k];
      }
    }
    return wrong;
  }

  EngineRows Run() {
    const engine::RunnerParts parts{*model_, &*provider_, nullptr, pool_, isa_};
    engine::PackWeights(parts, *provider_);
    runner_ = engine::MakeRunner(parts, {});
    const auto lengths = case_.json.at("prompt_len").get<std::vector<size_t>>();
    const Tensor logits = case_.Read("gen/logits"), data = case_.Read("gen/data");
    int32_t last[2] = {Prefill(0, "in/prompt", "prefill", lengths[0]), 0};
    for (int64_t step = 0; step < logits.dim(0); ++step) {
      if (step == 3) last[1] = Prefill(1, "in/prompt2", "prefill2", lengths[1]);
      std::vector<engine::Work> work;
      for (size_t slot = 0; slot < (step < 3 ? 1u : 2u); ++slot) work.push_back({ids_[slot], {&last[slot], 1}});
      const Tensor out = runner_->Step(work);
      for (size_t slot = 0; slot < work.size(); ++slot) {
        const auto at = static_cast<int64_t>(slot);
        Add(fmt::format("slot {} step {}", slot, step), out.Select(0, at), logits.Select(0, step).Select(0, at));
        last[slot] = data.At<int32_t>({step, at, 0});  // the recording's token, so that one flip stays one
      }
    }
    return std::move(rows_);
  }

 private:
  int32_t Prefill(size_t slot, const char* prompt, const std::string& recorded, size_t length) {
    std::vector<int32_t> tokens = case_.Read(prompt).ToVector<int32_t>();
    tokens.resize(length);
    ids_[slot] = runner_->Open(tokens, 0, "", nullptr);
    const engine::Work work{ids_[slot], tokens};
    Add(recorded, runner_->Step({&work, 1}), case_.Read(recorded + "/logits"));
    return case_.Read(recorded + "/first").At<int32_t>({0, 0});
  }

  void Add(std::string name, const Tensor& ours, const Tensor& recorded) {
    rows_.names.push_back(std::move(name));
    rows_.ours.push_back(ours.ToVector<float>());
    rows_.recorded.push_back(recorded.ToVector<float>());
  }

  const MaxTextCase& case_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  quant::RuleSet rules_;
  std::unique_ptr<models::Model> model_;
  quant::Plan plan_;
  std::optional<quant::Provider> provider_;
  std::unique_ptr<engine::Runner> runner_;
  engine::SequenceId ids_[2] = {};
  EngineRows rows_;
};

}  // namespace

MaxTextVerdict RunMaxTextEngine(const std::filesystem::path& file, ThreadPool& pool) {
  const MaxTextCase one = ReadMaxTextCase(file);
  const Settings settings = SettingsOfMaxText(one.config(), one.json.at("overrides"), one.name);
  const MaxTextRecipe recipe = RecipeOfMaxText(settings, one.forced(), one.folder);
  const MaxTextTolerance tolerance = ToleranceOf(recipe);
  EngineCase ours(one, settings, recipe, pool);
  MaxTextVerdict verdict;
  const int64_t wrong = ours.WrongCodes();
  if (wrong > 0) verdict.problems.push_back(fmt::format("{} codes differ from the converted checkpoint", wrong));
  const EngineRows rows = ours.Run();
  std::optional<EngineRows> yardstick;
  if (tolerance.to_float) yardstick = EngineCase(one, settings, {}, pool).Run();
  double largest = 0, measure = tolerance.logits;
  if (yardstick) {
    measure = 0;
    for (size_t i = 0; i < rows.names.size(); ++i)
      measure = std::max(measure, Distance(yardstick->ours[i], rows.recorded[i]));
  }
  size_t same = 0;
  for (size_t i = 0; i < rows.names.size(); ++i) {
    const double distance = Distance(rows.ours[i], rows.recorded[i]);
    largest = std::max(largest, distance);
    same += Largest(rows.ours[i]) == Largest(rows.recorded[i]) ? 1 : 0;
    if (distance > measure || std::isnan(distance)) {
      verdict.problems.push_back(
          fmt::format("{}: logits differ by {:.2g}, allowed {:.2g}", rows.names[i], distance, measure));
    }
  }
  if (same != rows.names.size() && !tolerance.to_float) {
    verdict.problems.push_back(
        fmt::format("{} of {} greedy tokens are others", rows.names.size() - same, rows.names.size()));
  }
  verdict.summary = fmt::format("engine: logits {:.1e} of {:.1e}, {} of {} tokens{}", largest, measure, same,
                                rows.names.size(), wrong == 0 ? ", all codes equal" : "");
  return verdict;
}

}  // namespace octavo
