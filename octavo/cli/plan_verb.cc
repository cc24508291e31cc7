// octavo plan: what would happen at every matmul, before anything runs.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/site_table.h"
#include "octavo/cli/verbs.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

// Options of recipes that may stand on the command line.
constexpr std::string_view kRecipeOptions[] = {
    "quantization_local_shard_count",
    "quantization_calibration_method",
    "weight_quantization_calibration_method",
    "act_quantization_calibration_method",
    "bwd_quantization_calibration_method",
    "weight_sparsity_n",
    "weight_sparsity_m",
    "weight_sparsity_start_step",
    "weight_sparsity_update_step",
    "constant_bound_config",
    "quantization_group_size",
};

std::string ReadText(const std::filesystem::path& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

quant::RuleSet RulesFor(const Args& args) {
  quant::Options options;
  for (std::string_view name : kRecipeOptions) {
    if (args.Has(name)) options.emplace_back(name, args.Text(name, ""));
  }
  const std::string file = args.Text("recipe", ""), name = args.Text("quantization", "");
  if (!file.empty() && !name.empty()) ThrowUsage("give quantization=NAME or recipe=FILE, not both");
  if (file.empty() && name.empty()) return quant::RuleSet({});
  const quant::Recipe recipe = file.empty() ? quant::FindRecipe(name, args.Switch("use_qwix_quantization"))
                                            : quant::ReadRecipe(ReadText(file), file);
  const std::string config = args.Text("quant_cfg_path", "");
  return quant::RuleSet(quant::RulesOf(recipe, options, config.empty() ? "" : ReadText(config)));
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

int RunPlan(const Args& args) {
  const std::string& path = args.positionals()[0];
  const SiteTable table = ParseSiteTable(ReadText(path), path);
  quant::PlanOptions options;
  options.model_name = table.name;
  const quant::Plan plan =
      quant::MakePlan([&](ops::Context& context) { RunSiteTable(table, context); }, RulesFor(args), options);
  if (args.Switch("json")) {
    PrintJson(plan);
  } else {
    fmt::print("{}", quant::PlanTable(plan));
  }
  return 0;
}

}  // namespace

VerbSpec PlanVerb() {
  VerbSpec verb{.name = "plan",
                .synopsis = "SITES.json [quantization=NAME [use_qwix_quantization=true] | recipe=FILE] [--json]",
                .summary = "what each matmul is quantized to, forward and backward, and what stays in float",
                .details =
                    "SITES.json lists the matmuls of a model: {\"name\": …, \"ops\": [{\"path\", \"op\", "
                    "\"lhs_shape\", \"rhs_shape\",\n"
                    "\"dims\" or \"einsum\", \"weight\", \"weight_side\"}, …]}. Exit 2 when a rule matches nothing.\n"
                    "  octavo plan sites.json quantization=int8 use_qwix_quantization=true\n"
                    "  octavo plan sites.json recipe=my_recipe.yml --json",
                .least_positionals = 1,
                .most_positionals = 1,
                .options = {{"quantization", "NAME", "a built-in recipe (octavo ls recipes)"},
                            {"use_qwix_quantization", "BOOL", "which of two recipes of the same name"},
                            {"recipe", "FILE", "a recipe of your own"},
                            {"quant_cfg_path", "FILE", "the JSON of quantization=intmp"}},
                .run = RunPlan};
  for (std::string_view name : kRecipeOptions) verb.options.push_back({name, "VALUE", "option of the recipe"});
  return verb;
}

}  // namespace octavo
