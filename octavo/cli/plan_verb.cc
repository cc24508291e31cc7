// octavo plan: what would happen at every matmul, before anything runs.
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/site_table.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/settings.h"
#include "octavo/kernels/isa.h"
#include "octavo/models/model.h"
#include "octavo/ops/context.h"
#include "octavo/quant/plan.h"
#include "octavo/train/flops.h"
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

// What training a model of ours takes.
struct Price {
  std::string model;  // "gpt3-52k   1 layer   52.5 k parameters"
  train::MemoryEstimate memory;
  double step_seconds = 0;
  int64_t steps = 0;
};

quant::Plan PlanOfModel(const Args& args, const Settings& settings, const quant::RecipeChoice& recipe, Price& price) {
  settings.RequireSupported();
  const train::TrainOptions options = train::TrainOptionsFrom(settings);
  const std::unique_ptr<models::Model> model = models::MakeModel(models::ModelConfigFrom(settings));
  const models::ModelConfig& config = model->config();
  const int64_t parameters = models::ParameterCount(*model);
  quant::Plan plan = train::PlanOf(*model, recipe, options);
  price.model = fmt::format("{}   {} layer{}   {} parameters", config.model_name, model->layers(),
                            model->layers() == 1 ? "" : "s", train::CountText(parameters));
  price.memory = train::EstimateMemory(config, parameters, options);
  price.steps = options.steps;
  ThreadPool pool(args.Threads());
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
  const train::StepFlops flops = train::FlopsOfStep(config, options.rows, options.length);
  price.step_seconds = train::EstimateStepSeconds(context, flops, plan, options, parameters);
  return plan;
}

void PrintPrice(const Price& price, const Settings& settings) {
  const train::MemoryEstimate& memory = price.memory;
  constexpr double kGiB = 1 << 30;
  if (const std::string note = settings.IgnoredNote(); !note.empty()) fmt::print(stderr, "note: {}\n", note);
  fmt::print(stderr,
             "model     {}\n"
             "memory    {:.2f} GiB to train: parameters {:.2f}, moments {:.2f}, gradients {:.2f}, activations {:.2f}, "
             "logits {:.2f}; {:.2f} available\n"
             "estimate  {}\n",
             price.model, memory.total() / kGiB, memory.parameters / kGiB, memory.moments / kGiB,
             memory.gradients / kGiB, memory.activations / kGiB, memory.logits / kGiB, train::AvailableMemory() / kGiB,
             train::EstimateText(price.step_seconds, price.steps));
}

void PrintPriceJson(const Price& price) {
  const auto whole = [](double bytes) { return static_cast<int64_t>(bytes); };
  const train::MemoryEstimate& memory = price.memory;
  const nlohmann::ordered_json bytes = {{"event", "memory"},
                                        {"parameters", whole(memory.parameters)},
                                        {"moments", whole(memory.moments)},
                                        {"gradients", whole(memory.gradients)},
                                        {"activations", whole(memory.activations)},
                                        {"logits", whole(memory.logits)},
                                        {"total", whole(memory.total())},
                                        {"available", whole(train::AvailableMemory())}};
  const nlohmann::ordered_json time = {
      {"event", "estimate"}, {"seconds_per_step", price.step_seconds}, {"steps", price.steps}};
  fmt::print("{}\n{}\n", bytes.dump(), time.dump());
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
  Price price;
  const quant::Plan plan = table ? PlanOfTable(path, recipe.rules) : PlanOfModel(args, settings, recipe, price);
  if (json) {
    PrintJson(plan);
    if (!table) PrintPriceJson(price);
  } else {
    if (!table && !args.Switch("quiet")) PrintPrice(price, settings);
    fmt::print("{}", quant::PlanTable(plan));
  }
  return 0;
}

}  // namespace

VerbSpec PlanVerb() {
  return {.name = "plan",
          .synopsis = "[FILE.yml | SITES.json] key=value… [--json]",
          .summary = "what each matmul is quantized to, what stays in float; memory and time of a step",
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
