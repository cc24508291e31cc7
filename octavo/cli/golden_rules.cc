// Kinds of cases about rules: which rule a site gets, and a small model run under the training provider.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/kernels/isa.h"
#include "octavo/ops/add.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/tape.h"
#include "octavo/quant/provider.h"
#include "octavo/quant/rule.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// JSON is YAML: the rules of a case go through the parser that users' files go through.
quant::RuleSet RulesOf(const GoldenCase& golden) {
  const std::string text = golden.Arg("rules").dump();
  return quant::RuleSet(quant::ParseRules(Yaml::Parse(text, "rules")));
}

bool IsMatching(const GoldenCase& golden) {
  return golden.Arg("rules").is_array() && golden.outputs().empty() && golden.Field("results").is_array();
}

void RunMatching(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const quant::RuleSet rules = RulesOf(golden);
  Json results = Json::array();
  for (const Json& entry : golden.Field("results")) {
    const std::string path = entry.at("path"), op = entry.at("op");
    const std::optional<ops::OpKind> kind = ops::OpKindByName(op);
    if (!kind) ThrowFile("unknown op '{}'", op);
    const std::optional<int> rule = rules.Match(path, *kind, true);
    results.push_back({{"path", path}, {"op", op}, {"rule", rule ? Json(*rule) : Json(nullptr)}});
  }
  check.Results(results);
}

// The model that such cases describe: layers of wi_0, max(x, 0), wo, then a head; as many as there are weights.
struct Mlp {
  std::vector<ops::Parameter> wi, wo;
  ops::Parameter head;

  explicit Mlp(const GoldenCase& golden) {
    for (int i = 0; golden.HasInput(fmt::format("wi{}", i)); ++i) {
      const std::string layer = fmt::format("decoder/layers_{}/mlp/", i);
      wi.push_back({layer + "wi_0/kernel", golden.Input(fmt::format("wi{}", i))});
      wo.push_back({layer + "wo/kernel", golden.Input(fmt::format("wo{}", i))});
    }
    head = {"decoder/logits_dense/kernel", golden.Input("logits")};
  }

  ops::Var Run(ops::Context& context, ops::Var x) const {
    context.StartModel();
    const ops::Scope decoder(context, "decoder");
    for (size_t i = 0; i < wi.size(); ++i) {
      const ops::Scope layer(context, fmt::format("layers_{}", i));
      const ops::Scope mlp(context, "mlp");
      x = Project(context, "wi_0", x, wi[i]);
      x = ops::Relu(context, x);
      x = Project(context, "wo", x, wo[i]);
    }
    return Project(context, "logits_dense", x, head);
  }

  static ops::Var Project(ops::Context& context, const char* name, const ops::Var& x, const ops::Parameter& kernel) {
    const ops::Scope scope(context, name);
    return ops::Project(context, x, kernel);
  }
};

bool IsModel(const GoldenCase& golden) {
  return golden.Arg("rules").is_array() && golden.HasInput("x") && golden.HasInput("g") && golden.HasInput("wi0") &&
         golden.HasInput("logits");
}

void RunModel(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  const Mlp model(golden);
  const Tensor x = golden.Input("x");
  const quant::RuleSet rules = RulesOf(golden);
  const quant::Plan plan =
      quant::MakePlan([&](ops::Context& context) { model.Run(context, Tensor::Meta(x.shape(), x.dtype())); }, rules);
  Json results = Json::array();
  for (const quant::SitePlan& site : plan.sites) {
    results.push_back({{"path", site.site.path},
                       {"op", NameOf(site.site.op)},
                       {"op_id", site.site.OpId()},
                       {"rule", site.rule < 0 ? Json(nullptr) : Json(site.rule)}});
  }
  check.Results(results);

  kernels::Workspace workspace;
  ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
  ops::Tape tape;
  quant::Provider provider(plan);
  context.tape = &tape;
  context.interceptor = &provider;
  const ops::Var leaf = tape.Leaf(x);
  const ops::Var out = model.Run(context, leaf);
  tape.Run(context, out, golden.Input("g"));
  const auto chained = [&](const std::string& name, const Tensor& actual) {
    if (golden.HasOutput(name)) check.Output(name, CompareChained(golden.Output(name), actual.Contiguous()));
  };
  chained("out", out.value);
  chained("dx", tape.Grad(leaf));
  chained("dlogits", tape.Grad(model.head));
  for (size_t i = 0; i < model.wi.size(); ++i) {
    chained(fmt::format("dwi{}", i), tape.Grad(model.wi[i]));
    chained(fmt::format("dwo{}", i), tape.Grad(model.wo[i]));
  }
}

}  // namespace

std::vector<GoldenKind> RuleKinds() {
  return {{"model under rules", IsModel, RunModel}, {"rule matching", IsMatching, RunMatching}};
}

}  // namespace octavo
