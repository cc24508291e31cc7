// Model folders, GGUF and llama2.c files as stored models. Codes of other tools stay codes where ours can hold them; a
// recipe is made that says so.
#include <algorithm>
#include <memory>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf.h"
#include "octavo/models/model.h"
#include "octavo/weights/carried.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/maxtext_names.h"
#include "octavo/weights/stored_parts.h"

namespace octavo::weights {
namespace {

namespace fs = std::filesystem;

void FindTokenizer(StoredModel& stored) {
  if (stored.kind == StoredKind::kHf) {
    stored.carried = CarriedIn(stored.path);
    UseTokenizer(stored, stored.path);
  } else if (stored.kind == StoredKind::kGguf && GgufFile(stored.path).content().Has("tokenizer.ggml.tokens")) {
    UseTokenizer(stored, stored.path);
  } else {
    UseTokenizerBeside(stored);
  }
}

// Scales in f32: widening is exact, and the product with a code is then the one that the file's own tool computes.
std::optional<QArray> CodesOf(const HfModel& model, const std::string& name, std::string* reason) {
  std::optional<QArray> codes = model.Codes(name, reason);
  if (codes) codes->scale = ConvertFloats(codes->scale, DType::kF32);
  return codes;
}

bool IsQuantized(const HfModel& model, const HfPiece& piece) {
  return std::all_of(piece.theirs.begin(), piece.theirs.end(),
                     [&](const std::string& name) { return model.tensors.tensors.at(name).read_lattice != nullptr; });
}

// What all layers of a stack are said to hold, found by reading the first of them.
struct Probe {
  std::optional<StoredCodes> codes;
  std::vector<int64_t> tile;
  std::string reason;
};

Probe ProbeCodes(const HfModel& model, const std::string& name) {
  Probe probe;
  const std::optional<QArray> codes = CodesOf(model, name, &probe.reason);
  if (!codes) return probe;
  probe.codes = StoredCodes{codes->format, codes->shape(), codes->scale.shape(), nullptr};
  probe.tile = TileShape(*codes);
  return probe;
}

// The rule of a site that runs on codes as they were stored, activations in float.
std::string RuleOf(const std::string& path, const StoredCodes& codes) {
  return fmt::format("  - {{module_path: '{}', only_weights: true, weight_qtype: {}}}\n", path,
                     Info(codes.format).name);
}

// The codes that ours can hold, of weights that sites multiply by; and the recipe under which they run as they are.
void KeepCodes(StoredModel& stored, const std::shared_ptr<const HfModel>& model) {
  const std::unique_ptr<models::Model> meta = models::MakeModel(stored.config);
  const quant::Plan plan = ForwardPlan(*meta, quant::RuleSet{{}});
  std::map<std::string, std::string> sites;  // of parameters
  for (const quant::SitePlan& site : plan.sites) {
    const bool ragged = site.site.op == ops::OpKind::kRaggedDot || site.site.op == ops::OpKind::kGmm;
    if (site.weight.empty() || site.weight.starts_with("token_embedder/") || ragged) continue;
    sites[site.weight] = site.site.path;
  }
  std::map<std::string, Probe> probes;
  std::map<std::string, std::string> rules;  // by expression
  for (const HfPiece& piece : model->pieces) {
    if (!IsQuantized(*model, piece)) continue;
    const std::string& name = piece.ours;
    if (!sites.contains(name)) {
      stored.decoded.emplace(name, "tables and experts run in floats");
      continue;
    }
    const std::optional<StackedName> stacked = ScannedNameOf(name);
    const std::string stack = stacked ? stacked->name : name;
    if (!probes.contains(stack)) probes.emplace(stack, ProbeCodes(*model, name));
    const Probe& probe = probes.at(stack);
    if (!probe.codes) {
      stored.decoded.emplace(name, probe.reason);
      continue;
    }
    StoredCodes codes = *probe.codes;
    codes.read = [model, name, probe] {
      std::string reason;
      std::optional<QArray> read = CodesOf(*model, name, &reason);
      if (!read || read->format != probe.codes->format || TileShape(*read) != probe.tile) {
        ThrowFile("{}: '{}' is quantized in another way than its first layer{}{}", model->source.where, name,
                  reason.empty() ? "" : ": ", reason);
      }
      return *std::move(read);
    };
    // One rule for all layers of a stack.
    std::string path = sites.at(name);
    if (const std::optional<StackedName> one = ScannedNameOf(path)) {
      path = path.substr(0, path.find(fmt::format("_{}/", one->layer)) + 1) + "[0-9]+" +
             path.substr(path.find('/', path.find(fmt::format("_{}/", one->layer))));
    }
    rules.emplace(path, RuleOf(path, codes));
    stored.codes.emplace(name, std::move(codes));
  }
  if (rules.empty()) return;
  std::string text = fmt::format("name: stored\norigin: octavo\nsummary: weights as a {} file holds them\nrules:\n",
                                 model->tensors.method);
  for (const auto& item : rules) text += item.second;
  stored.recipe = quant::RestoreRecipe("stored", text, {}, "", "recipe of " + stored.path.string());
}

void NoteDecoded(StoredModel& stored) {
  std::map<std::string, int64_t> reasons;
  for (const auto& item : stored.decoded) ++reasons[item.second];
  for (const auto& [reason, count] : reasons) {
    stored.notes.push_back(fmt::format("{} quantized weight{} dequantized: {}", count, count == 1 ? "" : "s",
                                       reason.empty() ? "ours cannot hold them" : reason));
  }
}

}  // namespace

StoredModel FromForeign(HfModel model, StoredKind kind, const fs::path& path) {
  StoredModel stored;
  stored.kind = kind;
  stored.path = path;
  stored.config = model.config.config;
  stored.notes = model.notes;
  stored.stored_tensors = static_cast<int64_t>(model.tensors.tensors.size());
  FindTokenizer(stored);
  const auto shared = std::make_shared<const HfModel>(std::move(model));
  stored.floats = shared->source;
  KeepCodes(stored, shared);
  NoteDecoded(stored);
  return stored;
}

}  // namespace octavo::weights
