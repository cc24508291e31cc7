// octavo plan: what would happen at every matmul, before anything runs.
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/site_table.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/settings.h"
#include "octavo/models/model.h"
#include "octavo/quant/plan.h"
#include "octavo/train/model_plan.h"
#include "octavo/train/start_block.h"

namespace octavo {
namespace {

std::string ReadText(const std::filesystem::path& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

nlohmann::json Describe(const quant::OperandPlan& operand) {
  if (!operand.format) return {{"format", "float"}};
  return {{"format", Info(*operand.format).name},
          {"granularity", operand.granularity},
          {"extent", operand.extent},
          {"calibration", operand.calibration},
          {"scales", operand.scales}};
}

nlohmann::json Describe(const quant::ProductPlan& product) {
  return {{"lhs", Describe(product.lhs)},
          {"rhs", Describe(product.rhs)},
          {"kernel", product.kernel},
          {"declined", product.declined}};
}

void PrintJson(const quant::Plan& plan) {
  const double macs = static_cast<double>(std::max<int64_t>(plan.macs(), 1));
  for (const quant::SitePlan& site : plan.sites) {
    const nlohmann::json line = {{"event", "site"},
                                 {"path", site.site.path},
                                 {"op", NameOf(site.site.op)},
                                 {"op_id", site.site.OpId()},
                                 {"weight", site.weight},
                                 {"rule", site.rule < 0 ? nlohmann::json(nullptr) : nlohmann::json(site.rule)},
                                 {"quantized", site.treatment.has_value()},
                                 {"forward", Describe(site.forward)},
                                 {"grad_lhs", Describe(site.grad_lhs)},
                                 {"grad_rhs", Describe(site.grad_rhs)},
                                 {"coupling", NameOf(site.coupling)},
                                 {"macs", site.macs},
                                 {"flop_share", static_cast<double>(site.macs) / macs},
                                 {"weight_bits", site.weight_bits}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  fmt::print(
      "{}\n",
      nlohmann::json({{"event", "coverage"}, {"sites", plan.sites.size()}, {"quantized_share", plan.quantized_share()}})
          .dump());
}

// The matmuls of a model that is not ours, listed in a file.
quant::Plan PlanOfTable(const std::string& path, const quant::RuleSet& rules) {
  const SiteTable table = ParseSiteTable(ReadText(path), path);
  quant::PlanOptions options;
  options.model_name = table.name;
  return quant::MakePlan([&](ops::Context& context) { RunSiteTable(table, context); }, rules, options);
}

// A model of ours, with the memory that training it takes.
quant::Plan PlanOfModel(const Settings& settings, const quant::RecipeChoice& recipe, bool say_size) {
  settings.RequireSupported();
  const train::TrainOptions options = train::TrainOptionsFrom(settings);
  const std::unique_ptr<models::Model> model = models::MakeModel(models::ModelConfigFrom(settings));
  int64_t parameters = 0;
  for (const ops::Parameter* parameter : model->parameters()) parameters += parameter->shape().size();
  quant::Plan plan = train::PlanOf(*model, recipe, options);
  if (say_size) {
    const train::MemoryEstimate memory = train::EstimateMemory(model->config(), parameters, options);
    constexpr double kGiB = 1 << 30;
    fmt::print(
        stderr,
        "model     {}   {} layers   {} parameters\n"
        "memory    {:.2f} GiB to train: parameters {:.2f}, moments {:.2f}, gradients {:.2f}, activations {:.2f}, "
        "logits {:.2f}\n",
        model->config().model_name, model->layers(), train::CountText(parameters), memory.total() / kGiB,
        memory.parameters / kGiB, memory.moments / kGiB, memory.gradients / kGiB, memory.activations / kGiB,
        memory.logits / kGiB);
  }
  return plan;
}

int RunPlan(const Args& args) {
  std::vector<std::string> words = args.positionals();
  const bool table = !words.empty() && words[0].ends_with(".json");
  const std::string path = table ? words[0] : "";
  if (table) words.clear();
  words.insert(words.end(), args.settings().begin(), args.settings().end());
  const Settings settings = Settings::Load({.words = words, .environment = ProcessEnvironment()});
  const bool json = args.Switch("json");
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  const quant::Plan plan =
      table ? PlanOfTable(path, recipe.rules) : PlanOfModel(settings, recipe, !json && !args.Switch("quiet"));
  if (json) {
    PrintJson(plan);
  } else {
    fmt::print("{}", quant::PlanTable(plan));
  }
  return 0;
}

}  // namespace

VerbSpec PlanVerb() {
  return {.name = "plan",
          .synopsis = "[FILE.yml | SITES.json] key=value… [--json]",
          .summary = "what each matmul is quantized to, forward and backward, and what stays in float",
          .details =
              "With the keys of train: the plan of the model that they describe, before anything runs.\n"
              "SITES.json lists the matmuls of any other model: {\"name\": …, \"ops\": [{\"path\", \"op\", "
              "\"lhs_shape\", \"rhs_shape\",\n"
              "\"dims\" or \"einsum\", \"weight\", \"weight_side\"}, …]}. Exit 2 when a rule matches nothing.\n"
              "  octavo plan model_name=llama2-7b quantization=int8 use_qwix_quantization=true\n"
              "  octavo plan sites.json recipe=my_recipe.yml --json",
          .most_positionals = 1,
          .run = RunPlan,
          .takes_settings = true};
}

}  // namespace octavo
