// octavo compare: two models over one text in lock step.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/progress.h"
#include "octavo/cli/evaluated_model.h"
#include "octavo/cli/verbs.h"
#include "octavo/eval/compare.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kShares[] = {0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999};
constexpr size_t kShownSites = 5;

// The tokenizer of both; an error when they do not give the same ids.
const text::Tokenizer& CommonTokenizer(const EvaluatedModel& a, const EvaluatedModel& b) {
  if (a.tokenizer == nullptr || b.tokenizer == nullptr) return TokenizerOf(a.tokenizer == nullptr ? b : a);
  const int32_t size = std::max(a.tokenizer->vocabulary_size(), b.tokenizer->vocabulary_size());
  for (int32_t id = 0; id < size; ++id) {
    if (a.tokenizer->Token(id) == b.tokenizer->Token(id)) continue;
    // Rows of the table that stand for nothing may have names in one form and none in the other.
    if (!a.tokenizer->Token(id) && b.tokenizer->Token(id)->starts_with("[PAD")) continue;
    if (!b.tokenizer->Token(id) && a.tokenizer->Token(id)->starts_with("[PAD")) continue;
    throw Error(ErrorCode::kCheck, fmt::format("A and B have different tokenizers (first difference: id {})", id),
                "KL is not defined; use eval on each");
  }
  return *a.tokenizer;
}

std::string Decibels(double value) {
  return std::isinf(value) ? std::string("equal") : fmt::format("{:.1f} dB", value);
}

void PrintJson(const eval::Comparison& found, const EvaluatedModel& a, const EvaluatedModel& b) {
  Json percentiles = Json::object();
  for (const double share : kShares) {
    percentiles[fmt::format("{:g}", 100 * share)] = eval::Percentile(found.deltas, share);
  }
  Json sites = Json::array();
  for (const eval::SiteError& site : found.sites) {
    const double value = site.Sqnr();
    sites.push_back({{"site", site.site}, {"sqnr_db", std::isfinite(value) ? Json(value) : Json()}});
  }
  fmt::print("{}\n", Json({{"event", "compare"},
                           {"equal", found.equal},
                           {"kl", found.kl.mean()},
                           {"kl_error", found.kl.standard_error()},
                           {"kl_largest", found.largest_kl},
                           {"top1_agreement", found.top_agreement()},
                           {"delta_p_mean", found.delta_p.mean()},
                           {"delta_p_rms", found.rms_delta_p},
                           {"delta_p_percentiles", percentiles},
                           {"loss_a", found.loss_a.mean()},
                           {"loss_b", found.loss_b.mean()},
                           {"tokens", found.tokens},
                           {"windows", found.windows},
                           {"logits_a", found.bits_a},
                           {"logits_b", found.bits_b},
                           {"fingerprint_a", a.loaded.fingerprint},
                           {"fingerprint_b", b.loaded.fingerprint},
                           {"sites", sites}})
                         .dump());
}

void PrintText(const eval::Comparison& found) {
  const std::string worst =
      found.sites.empty() ? "" : fmt::format("   worst {} {}", found.sites[0].site, Decibels(found.sites[0].Sqnr()));
  fmt::print("logits equal: {}   KL {:.5f} ± {:.5f}   top-1 agree {:.1f} %{}\n", found.equal ? "yes" : "no",
             found.kl.mean(), found.kl.standard_error(), 100 * found.top_agreement(), found.equal ? "" : worst);
  if (found.equal) return;
  fmt::print("loss A {:.4f} ± {:.4f}   B {:.4f} ± {:.4f}   tokens {}   largest KL of a token {:.4f}\n",
             found.loss_a.mean(), found.loss_a.standard_error(), found.loss_b.mean(), found.loss_b.standard_error(),
             found.tokens, found.largest_kl);
  std::string line =
      fmt::format("Δp of the right token: mean {:+.4f}   rms {:.4f}", found.delta_p.mean(), found.rms_delta_p);
  for (const double share : {0.01, 0.05, 0.5, 0.95, 0.99}) {
    line += fmt::format("   {:g} % {:+.4f}", 100 * share, eval::Percentile(found.deltas, share));
  }
  fmt::print("{}\n", line);
  for (size_t i = 0; i < std::min(found.sites.size(), kShownSites); ++i) {
    fmt::print("  {:<48} {}\n", found.sites[i].site, Decibels(found.sites[i].Sqnr()));
  }
}

// "worst sites: decoder/layers_7/mlp/wo 31.2 dB, …".
std::string WorstSites(const eval::Comparison& found) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min<size_t>(found.sites.size(), 2); ++i) {
    shown.push_back(fmt::format("{} {}", found.sites[i].site, Decibels(found.sites[i].Sqnr())));
  }
  return fmt::format("worst sites: {}; keep them in bf16 or raise max_kl", fmt::join(shown, ", "));
}

int Run(const Args& args) {
  const std::optional<double> max_kl = NumberOption(args, "max_kl");
  ThreadPool pool(args.Threads());
  const EvaluatedModel a = LoadEvaluated(args.positionals()[0], args.Switch("float"), args, pool);
  const EvaluatedModel b = LoadEvaluated(args.positionals()[1], false, args, pool);
  const text::Tokenizer& tokenizer = CommonTokenizer(a, b);
  eval::RequireSameShapes(*a.loaded.model, *b.loaded.model);
  const EvaluatedText text = ReadEvaluatedText(a, tokenizer, !args.Has("data"), args);
  const eval::Windows windows(text.tokens, text.windows);
  eval::Comparison found;
  {
    Log log(STDERR_FILENO, ChooseLogOptions(STDERR_FILENO, ColorChoice::kAuto, args.Switch("quiet")));
    Progress progress(log, "compare", windows.targets(), "tokens");
    eval::CompareOptions options;
    options.done = [&](int64_t, const eval::Comparison& so_far) { progress.Update(so_far.tokens); };
    found = eval::Compare(a.subject, b.subject, windows, pool, options);
  }
  if (args.Switch("json")) {
    PrintJson(found, a, b);
  } else {
    PrintText(found);
  }
  std::fflush(stdout);
  if (max_kl && found.kl.mean() > *max_kl) {
    throw Error(ErrorCode::kCheck, fmt::format("KL {:.4f} is over max_kl={}", found.kl.mean(), *max_kl),
                WorstSites(found));
  }
  return 0;
}

}  // namespace

VerbSpec CompareVerb() {
  return {
      .name = "compare",
      .synopsis = "A B [data=FILE] [max_kl=KL]",
      .summary = "how far model B lies from model A: KL, top-1 agreement, Δp, the worst sites",
      .details =
          "Runs both over the same text in lock step and holds a few rows of logits at a time. KL is KL(A || B) per\n"
          "token in nats; Δp is the change of the probability of the right token; a site's dB are signal to noise\n"
          "of its output, with the error that reached it. Without data= a built-in text is used. With max_kl= the\n"
          "exit code is 3 when the KL is above. --float runs A without its recipe.\n"
          "  octavo compare out/x/checkpoints/20 out/x-int8\n"
          "  octavo compare Qwen3-0.6B qwen-int8 data=notes.txt max_kl=0.01 --json",
      .least_positionals = 2,
      .most_positionals = 2,
      .options = EvaluationOptions(
          {{"max_kl", "KL", "exit 3 when the divergence is above"}, {"float", "", "A without its recipe"}}),
      .run = Run};
}

}  // namespace octavo
