#include "octavo/ops/remat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/ops/aux_losses.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

constexpr std::array<std::string_view, 23> kSaveNames = {"decoder_layer_input",
                                                         "context",
                                                         "mlpwi",
                                                         "mlpwi_0",
                                                         "mlpwi_1",
                                                         "mlpwo",
                                                         "moe_mlpwi_0",
                                                         "moe_mlpwi_1",
                                                         "moe_mlpwo",
                                                         "query_proj",
                                                         "key_proj",
                                                         "value_proj",
                                                         "kv_proj",
                                                         "qkv_proj",
                                                         "out_proj",
                                                         "query_wa_proj",
                                                         "kv_wa_proj",
                                                         "mla_q",
                                                         "mla_kv",
                                                         "attention_out",
                                                         "engram",
                                                         "indexer_cutoff_threshold",
                                                         "quantization"};

struct Named {
  std::string_view name;
  std::vector<std::string_view> saved;
};

const std::vector<std::string_view> kQkv = {"query_proj", "key_proj", "value_proj", "kv_proj", "qkv_proj"};

std::vector<std::string_view> Join(std::vector<std::string_view> names, std::initializer_list<std::string_view> more) {
  names.insert(names.end(), more);
  return names;
}

std::vector<Named> Policies() {
  const std::vector<std::string_view> minimal =
      Join(kQkv, {"out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv",
                  "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo"});
  return {
      {"full", {}},
      {"minimal", minimal},
      {"minimal_with_context", Join(minimal, {"context"})},
      {"minimal_flash", Join(minimal, {"context"})},
      {"minimal_with_quantization", Join(minimal, {"quantization"})},
      {"minimal_with_context_and_quantization", Join(minimal, {"context", "quantization"})},
      {"save_dot_with_context_except_mlp", Join(kQkv, {"context", "out_proj"})},
      {"save_dot_except_mlpwi", Join(kQkv, {"out_proj", "mlpwo"})},
      {"save_dot_except_mlp", Join(kQkv, {"out_proj"})},
      {"save_qkv_proj", kQkv},
      {"save_out_proj", {"out_proj"}},
      {"qkv_proj_offloaded", {"query_proj", "key_proj", "value_proj"}},
      {"minimal_offloaded", Join(minimal, {"context"})},
  };
}

}  // namespace

std::span<const std::string_view> SaveNames() { return kSaveNames; }

std::optional<RematPolicy> RematPolicyByName(std::string_view name) {
  if (name == "none" || name.empty()) return RematPolicy{"none", true, {}};  // a null of the settings is none
  for (const Named& policy : Policies()) {
    if (policy.name == name) return RematPolicy{std::string(name), false, {policy.saved.begin(), policy.saved.end()}};
  }
  return std::nullopt;
}

RematPolicy CustomRematPolicy(std::span<const std::string> kept) {
  for (const std::string& name : kept) {
    if (std::find(kSaveNames.begin(), kSaveNames.end(), name) == kSaveNames.end()) {
      throw Error(ErrorCode::kUsage, fmt::format("remat_policy=custom: no activation is named {}", name),
                  fmt::format("nearest: {}", fmt::join(NearestNames(name, kSaveNames, 3), ", ")));
    }
  }
  return RematPolicy{"custom", false, {kept.begin(), kept.end()}};
}

std::vector<std::string> RematPolicyNames() {
  std::vector<std::string> names = {"none"};
  for (const Named& policy : Policies()) names.emplace_back(policy.name);
  names.emplace_back("custom");
  return names;
}

std::vector<Tensor> Recall(Context& context, std::string_view save_name) {
  if (save_name.empty() || context.frame == nullptr || !context.frame->replaying) return {};
  RematFrame& frame = *context.frame;
  if (!frame.policy->Saves(save_name)) return {};
  OCTAVO_CHECK(frame.next < frame.kept.size());
  return std::move(frame.kept[frame.next++]);
}

void Keep(Context& context, std::string_view save_name, std::vector<Tensor> outputs) {
  if (save_name.empty() || context.frame == nullptr || context.frame->replaying) return;
  if (context.frame->policy->Saves(save_name)) context.frame->kept.push_back(std::move(outputs));
}

namespace {

// One layer between its forward pass and its replay.
struct Region {
  std::function<Var(Context&, const Var&)> layer;
  Var x;
  Tape* tape;
  RematFrame frame;
  std::string path;
  SiteCounts counts;  // before the layer
  const Rows* rows;
  bool training;
  ModelId model;
  std::vector<Tensor> aux_grads;
};

// Everything of the context that a run of the layer changes, put back at the end.
class Inside {
 public:
  Inside(Context& context, RematFrame& frame, AuxLosses* aux)
      : context_(context),
        frame_(context.frame),
        aux_(context.aux),
        updates_(context.updates),
        touched_(context.touched),
        rows_(context.rows),
        remat_(context.remat),
        tape_(context.tape),
        training_(context.training),
        model_(context.model) {
    context.frame = &frame;
    if (context.aux != nullptr || frame.replaying) context.aux = aux;
    context.remat = nullptr;
  }
  ~Inside() {
    context_.frame = frame_;
    context_.aux = aux_;
    context_.updates = updates_;
    context_.touched = touched_;
    context_.rows = rows_;
    context_.remat = remat_;
    context_.tape = tape_;
    context_.training = training_;
    context_.model = model_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Context& context_;
  RematFrame* frame_;
  AuxLosses* aux_;
  UpdateSink* updates_;
  SiteCounts* touched_;
  const Rows* rows_;
  const RematPolicy* remat_;
  Tape* tape_;
  bool training_;
  ModelId model_;
};

// Runs the layer again on the tape it came from, then walks back over what that recorded.
void Replay(Context& back, Region& region, const Tensor& grad) {
  Tape& tape = *region.tape;
  const size_t mark = tape.StartReplay();
  AuxLosses aux;
  Var out;
  std::string path = region.path;
  SiteCounts counts = region.counts;
  back.SwapPlace(path, counts);
  try {
    region.frame.replaying = true;
    const Inside inside(back, region.frame, &aux);
    back.updates = nullptr;
    back.touched = nullptr;
    back.tape = &tape;
    back.rows = region.rows;
    back.training = region.training;
    back.model = region.model;
    out = region.layer(back, region.x);
  } catch (...) {
    back.SwapPlace(path, counts);
    throw;
  }
  back.SwapPlace(path, counts);
  OCTAVO_CHECK(region.frame.next == region.frame.kept.size());
  std::vector<std::pair<Var, Tensor>> seeds = {{out, grad}};
  out = Var();
  for (size_t i = 0; i < region.aux_grads.size(); ++i) {
    if (region.aux_grads[i].defined()) seeds.emplace_back(aux.load_balance[i], region.aux_grads[i]);
  }
  aux = AuxLosses();
  tape.FinishReplay(back, mark, std::move(seeds));
}

}  // namespace

Var Checkpoint(Context& context, const Var& x, std::function<Var(Context&, const Var&)> layer) {
  if (context.tape == nullptr || context.remat == nullptr || context.remat->everything || context.frame != nullptr ||
      x.node == kConstant) {
    return layer(context, x);
  }
  const auto region = std::make_shared<Region>();
  region->layer = std::move(layer);
  region->x = x;
  region->tape = context.tape;
  region->frame.policy = context.remat;
  region->path = context.path();
  region->rows = context.rows;
  region->training = context.training;
  region->model = context.model;
  AuxLosses aux;
  Var out;
  {
    const Tape::Pause pause(*context.tape);
    const Inside inside(context, region->frame, &aux);
    context.touched = &region->counts;
    out = region->layer(context, x);
  }
  const Var whole = context.tape->Record(out.value, {x.node}, [region](Context& back, const Tensor& grad) {
    Replay(back, *region, grad);
    return std::vector<Tensor>(1);  // the replay has added the gradient of x itself
  });
  if (context.aux == nullptr) return whole;
  // The layer's own losses stand above it on the tape: their gradients wait for the replay.
  region->aux_grads.resize(aux.load_balance.size());
  for (size_t i = 0; i < aux.load_balance.size(); ++i) {
    context.aux->load_balance.push_back(
        context.tape->Record(aux.load_balance[i].value, {whole.node}, [region, i](Context&, const Tensor& grad) {
          region->aux_grads[i] = grad;
          return std::vector<Tensor>(1);
        }));
  }
  for (AuxLosses::ExpertLoad& load : aux.loads) context.aux->loads.push_back(std::move(load));
  return whole;
}

}  // namespace octavo::ops
