// Compares our plans with the site tables of the reference: which dots a model has, in which order, under which paths,
// kinds and ordinals, with which weights and axes, and which rule of a recipe each gets.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/cli/golden_maxtext.h"
#include "octavo/models/model.h"
#include "octavo/ops/einsum_dims.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/recipe.h"
#include "octavo/weights/maxtext_names.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// Only the key-value pairs that a table leaves out because it shows their effect.
Json CompletedConfig(const Json& one) {
  Json config = one.at("config");
  for (const Json& op : one.at("ops")) {
    if (op.value("weight", Json()) == "decoder/position_embedder/embedding") {
      config["trainable_position_size"] = op.at("param_shape").at(0);
    }
  }
  return config;
}

Shape ShapeOf(const Json& dims) { return Shape(dims.get<std::vector<int64_t>>()); }

DotDims DimsOf(const Json& op) {
  if (op.contains("einsum") && op.at("einsum").is_string()) {
    return ops::ParseEinsum("sites", op.at("einsum").get<std::string>(), ShapeOf(op.at("lhs_shape")),
                            ShapeOf(op.at("rhs_shape")))
        .dims;
  }
  const Json& dims = op.at("dims");
  return {dims[0][0], dims[0][1], dims[1][0], dims[1][1]};
}

// A plan's sites as a scanned pass lists them: the first layer of each stack stands for all of it.
struct Listed {
  const quant::SitePlan* site;
  std::string path, weight;  // in the table's spelling
};

std::vector<Listed> List(const quant::Plan& plan, bool scanned, std::vector<std::string>& problems) {
  std::vector<Listed> listed;
  std::map<std::string, const quant::SitePlan*> first;
  for (const quant::SitePlan& site : plan.sites) {
    const auto stacked = scanned ? weights::ScannedNameOf(site.site.path) : std::nullopt;
    const auto weight = scanned ? weights::ScannedNameOf(site.weight) : std::nullopt;
    const Listed one{&site, stacked ? stacked->name : site.site.path, weight ? weight->name : site.weight};
    if (stacked) {
      const auto [at, is_new] = first.emplace(one.path + site.site.OpId(), &site);
      const quant::SitePlan& before = *at->second;
      const bool alike = before.rule == site.rule && before.lhs == site.lhs && before.rhs == site.rhs;
      if (!alike) problems.push_back(fmt::format("{}: differs from layer 0", site.site.ToString()));
      if (!is_new) continue;
    }
    listed.push_back(one);
  }
  return listed;
}

class Comparison {
 public:
  Comparison(const Json& one, const std::string& recipe, std::vector<std::string>& problems)
      : case_(one), recipe_(recipe), problems_(problems) {}

  void Run(const Settings& settings) {
    const models::ModelConfig config = models::ModelConfigFrom(settings);
    const std::unique_ptr<models::Model> model = models::MakeModel(config);
    const quant::Plan plan = MakePlan(*model, settings);
    std::vector<Listed> ours = List(plan, settings.Bool("scan_layers"), problems_);
    TakeOutKernelCalls(settings, ours);
    size_t at = 0;
    for (const Json& op : case_.at("ops")) {
      const std::string name = op.at("path").get<std::string>() + " " + op.at("op_id").get<std::string>();
      if (at == ours.size()) {
        Fail("{}: we have no such op", name);
        continue;
      }
      const Listed& mine = ours[at++];
      const std::string found = mine.path + " " + mine.site->site.OpId();
      if (found != name) {
        Fail("place {}: expected {}, found {}", at - 1, name, found);
        return;  // everything after it would be shifted
      }
      CompareOp(name, op, mine, config, *model);
    }
    for (; at < ours.size(); ++at)
      Fail("{} {}: the reference has no such op", ours[at].path, ours[at].site->site.OpId());
  }

 private:
  quant::Plan MakePlan(models::Model& model, const Settings& settings) const {
    const quant::Recipe recipe = quant::FindRecipe(recipe_, true);
    const quant::RuleSet rules(quant::RulesOf(recipe, {}));
    const auto batch = static_cast<int64_t>(settings.Number("per_device_batch_size"));
    const int64_t length = settings.Int("max_target_length");
    const ops::Rows rows = ops::RowsOfShape(batch, length);
    return quant::MakePlan(
        [&](ops::Context& context) {
          const Tensor ids = Tensor::Meta({batch, length}, DType::kI32);
          models::Loss(context, model, ids, ids, ids, rows, {.total_weights = 1}, nullptr);
        },
        rules);
  }

  // The grouped product of megablox is a kernel call, which the reference's provider does not see: no entry under int8.
  // Its rule is looked up as `gmm` under fp8_full.
  void TakeOutKernelCalls(const Settings& settings, std::vector<Listed>& ours) {
    if (!settings.Bool("megablox") || !settings.Bool("sparse_matmul")) return;
    const int expected = recipe_ == "fp8_full" ? 0 : -1;
    for (const Listed& one : ours) {
      if (one.site->site.op == ops::OpKind::kGmm && one.site->rule != expected) {
        Fail("{}: rule {}, expected {}", one.site->site.ToString(), one.site->rule, expected);
      }
    }
    std::erase_if(ours, [](const Listed& one) { return one.site->site.op == ops::OpKind::kGmm; });
  }

  void CompareOp(const std::string& name, const Json& op, const Listed& mine, const models::ModelConfig& config,
                 const models::Model& model) {
    const quant::SitePlan& site = *mine.site;
    const std::string rule_key = "rule_" + recipe_;
    if (op.contains(rule_key)) {
      const int expected = op.at(rule_key).is_null() ? -1 : op.at(rule_key).get<int>();
      if (site.rule != expected) Fail("{}: rule {}, expected {}", name, site.rule, expected);
    }
    const std::string weight = op.at("weight").is_string() ? op.at("weight").get<std::string>() : "";
    if (mine.weight != weight) Fail("{}: weight '{}', expected '{}'", name, mine.weight, weight);
    const bool ragged = op.at("op") == "ragged_dot";
    const Shape lhs = ShapeOf(op.at("lhs_shape")), rhs = ShapeOf(op.at("rhs_shape"));
    // The dot of an einsum has the equation's second operand on the left, unless it is computed inside another op.
    const bool swapped = op.at("op") == "einsum" && !(site.lhs == lhs && site.rhs == rhs);
    CompareShape(name, "lhs", lhs, swapped ? site.rhs : site.lhs, ragged);
    CompareShape(name, "rhs", rhs, swapped ? site.lhs : site.rhs, false);
    if (!ragged) CompareDims(name, op, site.dims, swapped);
    if (!weight.empty()) CompareParameter(name, op, site, swapped, config, model);
  }

  // Rows of a ragged dot are padded there (to 512), not here.
  void CompareShape(const std::string& name, const char* side, const Shape& expected, const Shape& found, bool padded) {
    const bool same = padded ? expected.rank() == found.rank() && expected[1] == found[1] : expected == found;
    if (!same) Fail("{}: {} is {}, expected {}", name, side, found, expected);
  }

  void CompareDims(const std::string& name, const Json& op, const DotDims& found, bool swapped) {
    DotDims expected = DimsOf(op);
    // ParseEinsum has them swapped already.
    const bool turn = op.at("op") == "einsum" && !swapped;
    if (turn) {
      std::swap(expected.lhs_contract, expected.rhs_contract);
      std::swap(expected.lhs_batch, expected.rhs_batch);
    }
    if (found != expected) Fail("{}: contracts other axes", name);
  }

  void CompareParameter(const std::string& name, const Json& op, const quant::SitePlan& site, bool swapped,
                        const models::ModelConfig& config, const models::Model& model) {
    const bool is_lhs = swapped != site.weight_is_lhs;
    if ((op.at("weight_side") == "lhs") != is_lhs) Fail("{}: the weight is on the other side", name);
    const ops::Parameter* parameter = model.parameter_set().Find(site.weight);
    if (parameter == nullptr) return Fail("{}: the model has no {}", name, site.weight);
    const Shape expected = ShapeOf(op.at("param_shape"));
    Shape found = parameter->shape();
    const auto stacked = config.scan_layers ? weights::ScannedNameOf(site.weight) : std::nullopt;
    if (stacked) {
      int64_t layers = 0;
      for (const ops::Parameter* other : model.parameters()) {
        const auto same = weights::ScannedNameOf(other->name);
        if (same && same->name == stacked->name) ++layers;
      }
      found = weights::StackedShape(found, layers, static_cast<int>(config.param_scan_axis));
    }
    if (found != expected) Fail("{}: the parameter is {}, expected {}", name, found, expected);
  }

  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format("{}: {}", recipe_, fmt::format(format, std::forward<Args>(args)...)));
  }

  const Json& case_;
  std::string recipe_;
  std::vector<std::string>& problems_;
};

// The product's recipes must have the rules that the table was recorded with.
void CompareRules(const std::string& recipe, const Json& recorded, std::vector<std::string>& problems) {
  const std::vector<quant::Rule> ours = quant::RulesOf(quant::FindRecipe(recipe, true), {});
  bool same = ours.size() == recorded.size();
  for (size_t i = 0; same && i < ours.size(); ++i) {
    std::vector<std::string> ops;
    for (const ops::OpKind op : ours[i].ops) ops.emplace_back(NameOf(op));
    same = ours[i].module_path == recorded[i].at("module_path").get<std::string>() &&
           ops == recorded[i].at("op_names").get<std::vector<std::string>>();
  }
  if (!same) problems.push_back(fmt::format("{}: our rules differ from {}", recipe, recorded.dump()));
}

}  // namespace

std::vector<MaxTextSites> CompareMaxTextSites(const std::filesystem::path& sites_json) {
  std::ifstream file(sites_json);
  const Json table = Json::parse(file);
  std::vector<MaxTextSites> results;
  MaxTextSites& rules = results.emplace_back();
  rules.name = "the rules";
  for (const auto& [recipe, recorded] : table.at("rules").items()) CompareRules(recipe, recorded, rules.problems);
  for (const Json& one : table.at("cases")) {
    MaxTextSites& result = results.emplace_back();
    result.name = one.at("name").get<std::string>();
    try {
      const Settings settings = SettingsOfMaxText(CompletedConfig(one), {}, result.name);
      for (const auto& [recipe, recorded] : table.at("rules").items()) {
        Comparison(one, recipe, result.problems).Run(settings);
      }
    } catch (const std::exception& error) {
      result.problems.push_back(error.what());
    }
  }
  return results;
}

}  // namespace octavo
