// octavo verify: the logits of prompts in every way a server may compute them, as hashes.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/settings.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/engine/verify.h"
#include "octavo/kernels/isa.h"
#include "octavo/quant/kv_quant.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/load_model.h"

namespace octavo {
namespace {

ops::KvFormat KvFormatOf(const Settings& settings, DType dtype) {
  ops::KvFormat format;
  format.format = dtype == DType::kBF16 ? Format::kBF16 : Format::kF32;
  if (!settings.Bool("quantize_kvcache")) return format;
  format.format = quant::ParseKvFormat(settings.Text("kv_quant_dtype"));
  format.scale_per_head = quant::ParseKvAxes(settings.Text("kv_quant_axis")) == quant::KvAxes::kDkv;
  return format;
}

int RunVerify(const Args& args) {
  const Settings settings = Settings::Load({.words = args.settings(), .environment = ProcessEnvironment()});
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  const weights::StoredModel stored = weights::OpenStored(args.positionals()[0]);
  ThreadPool pool(args.Threads());
  engine::VerifyOptions options{.isa = kernels::ChooseIsa().isa};
  options.prompts = static_cast<int>(args.Int("prompts", 8, 1, 64));
  options.tokens = args.Int("tokens", 72, 2, 1 << 20);
  weights::LoadOptions how;
  if (!recipe.empty()) how.recipe = &recipe;
  how.must_be_quantized = settings.Bool("checkpoint_is_quantized");
  how.max_target_length = options.tokens + options.prompts;
  weights::LoadedModel served = weights::LoadModel(stored, how, pool, options.isa);
  options.kv = KvFormatOf(settings, served.model->config().dtype);
  if (!served.plan->kv_caches.empty()) options.kv = served.plan->kv_caches.front().format;
  quant::Provider provider(*served.plan);
  engine::PackWeights({*served.model, &provider, &served.state, pool, options.isa}, provider);
  // The trainer's form: float masters under the same recipe. A converted file holds none; source= says where they are.
  std::optional<weights::StoredModel> source;
  if (args.Has("source")) source = weights::OpenStored(args.Text("source", ""));
  std::optional<weights::LoadedModel> trained;
  std::optional<quant::Provider> trainer;
  if (source || !stored.quantized()) {
    how.holding = weights::Holding::kFloats;
    how.must_be_quantized = false;
    if (how.recipe == nullptr && !stored.recipe.empty()) how.recipe = &stored.recipe;
    trained = weights::LoadModel(source ? *source : stored, how, pool, options.isa);
    trainer.emplace(*trained->plan);
  }
  const bool json = args.Switch("json"), quiet = args.Switch("quiet");
  if (!json && !quiet) {
    fmt::print(stderr, "verify    {}   {}   keys and values {}   {} prompts of {} … {} tokens\n", stored.name,
               served.recipe_name.empty() ? "float" : served.recipe_name, Info(options.kv.format).name, options.prompts,
               options.tokens, options.tokens + options.prompts - 1);
    if (!trained) {
      fmt::print(stderr, "          no float masters in this file: the trainer's form is left out (source=PATH)\n");
    }
  }
  const engine::VerifyModel left{*served.model, &provider, &served.state};
  std::optional<engine::VerifyModel> right;
  if (trained) right.emplace(engine::VerifyModel{*trained->model, &*trainer, &trained->state});
  const engine::VerifyReport report = engine::Verify(left, right ? &*right : nullptr, options);
  if (json) {
    for (const engine::VerifyRow& row : report.rows) {
      fmt::print("{}\n", nlohmann::json({{"event", "row"}, {"what", row.what}, {"hashes", row.hashes}}).dump());
    }
    fmt::print(
        "{}\n",
        nlohmann::json({{"event", "verdict"}, {"equal", report.equal()}, {"different", report.different}}).dump());
  } else {
    fmt::print("{}", engine::VerifyTable(report, options));
  }
  return report.equal() ? 0 : static_cast<int>(ErrorCode::kCheck);
}

}  // namespace

VerbSpec VerifyVerb() {
  return {
      .name = "verify",
      .synopsis = "MODEL [source=PATH] [prompts=8] [tokens=72] key=value… [--json]",
      .summary = "the same logits, bit for bit, whatever the threads, batch, chunks, slots and cache",
      .details =
          "Runs prompts over 1, 2 and 3 threads, batches of 1, 3 and 8, prefill in pieces of 1, 7, 64 and all, in "
          "other slots,\nwith the prefix cache missing and hitting, after preemption, and through the trainer's "
          "forward pass, and prints a\nhash of the logits for each. Exit 3 when any differs.\n"
          "  octavo verify out/x/checkpoints/20 quantization=int8\n"
          "  octavo verify out/x-int8 source=out/x/checkpoints/20\n"
          "  octavo verify out/x-int8 quantize_kvcache=true kv_quant_dtype=int4 kv_quant_axis=dkv",
      .least_positionals = 1,
      .most_positionals = 1,
      .options = {{"source", "PATH", "the float model that MODEL was converted from, for the trainer's forward pass"},
                  {"prompts", "N", "how many prompts (8)"},
                  {"tokens", "N", "tokens of the first prompt (72)"}},
      .run = RunVerify,
      .takes_settings = true};
}

}  // namespace octavo
