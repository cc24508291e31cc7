// Trains a case as the product trains, and keeps what the recording has.
#include <cmath>
#include <memory>
#include <set>

#include "octavo/base/error.h"
#include "octavo/cli/golden_maxtext.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"
#include "octavo/models/model.h"
#include "octavo/ops/aux_losses.h"
#include "octavo/ops/remat.h"
#include "octavo/ops/state.h"
#include "octavo/ops/tape.h"
#include "octavo/optim/clipping.h"
#include "octavo/optim/gradient_tree.h"
#include "octavo/optim/optimizer.h"
#include "octavo/optim/routing_bias.h"
#include "octavo/quant/provider.h"
#include "octavo/train/options.h"
#include "octavo/weights/restore.h"

namespace octavo {
namespace {

struct Batch {
  Tensor inputs, positions, segmentation, targets, target_segmentation;  // i32 [rows, length]

  explicit Batch(const MaxTextCase& one)
      : inputs(one.Read("batch/inputs")),
        positions(one.Read("batch/inputs_position")),
        segmentation(one.Read("batch/inputs_segmentation")),
        targets(one.Read("batch/targets")),
        target_segmentation(one.Read("batch/targets_segmentation")) {}

  int64_t rows() const { return inputs.dim(0); }
  Batch Rows(int64_t begin, int64_t end) const {
    Batch part = *this;
    for (Tensor* tensor :
         {&part.inputs, &part.positions, &part.segmentation, &part.targets, &part.target_segmentation}) {
      *tensor = tensor->Slice(0, begin, end).Contiguous();
    }
    return part;
  }
  double Weights() const {
    double count = 0;
    for (const int32_t segment : target_segmentation.ToVector<int32_t>()) count += segment != 0 ? 1 : 0;
    return count;
  }
};

// The reference's recorded state stood still in the cases with delayed scaling: theirs then are references for casting
// with the scales of the start. A recording whose state moves asks ours to move.
bool RecordedStateMoves(const MaxTextCase& one) {
  const weights::Source first = one.tensors.Under("state0/");
  for (const char* later : {"state1/", "state6/"}) {
    for (const auto& [name, stored] : one.tensors.Under(later).tensors) {
      const auto before = first.tensors.find(name);
      if (before == first.tensors.end() || !BitEqual(before->second.read(), stored.read())) return true;
    }
  }
  return false;
}

class Trainer {
 public:
  Trainer(const MaxTextCase& one, const Settings& settings, const MaxTextRecipe& recipe, ThreadPool& pool,
          int sample = 0)
      : case_(one),
        settings_(settings),
        pool_(pool),
        isa_(kernels::ChooseIsa().isa),
        batch_(one),
        model_(models::MakeModel(models::ModelConfigFrom(settings))),
        schedule_(train::ScheduleOf(settings)) {
    axis_ = static_cast<int>(settings.Int("param_scan_axis"));
    scanned_ = settings.Bool("scan_layers");
    weights::RestoreParameters(one.init, model_->parameters(), {.param_scan_axis = axis_});
    // The recording's own tensors must stay as they are: the optimizer writes in place.
    for (ops::Parameter* parameter : model_->parameters()) {
      parameter->value = parameter->tensor().Clone();
      names_.push_back(parameter->name);
    }
    if (!recipe.rules.empty()) {
      plan_ = quant::MakePlan([&](ops::Context& context) { DryRun(context); }, quant::RuleSet(recipe.rules));
      provider_ = std::make_unique<quant::Provider>(plan_);
    }
    if (sample > 0) MoveLastBits(sample);
    optimizer_ = std::make_unique<optim::Optimizer>(train::OptimizerOf(settings), model_->parameters());
    remat_ = ops::RematPolicyByName(settings.Text("remat_policy"));
    if (!remat_) ThrowUsage("remat_policy={} is not known", settings.Text("remat_policy"));
    moves_ = RecordedStateMoves(one);
  }

  MaxTextRun Run() {
    MaxTextRun run;
    if (case_.Has("out/logits")) run.logits = Logits();
    const int64_t steps = case_.json.value("steps", 1);
    for (int64_t step = 0; step < steps; ++step) Step(step, run);
    return run;
  }

  // The optimizer's first step, on the recorded gradients: apart from differences of ours.
  std::map<std::string, Tensor> StepOnRecordedGradients() {
    std::unique_ptr<models::Model> gradient = models::MakeModel(model_->config());
    weights::RestoreParameters(case_.tensors.Under("grads/params/"), gradient->parameters(),
                               {.param_scan_axis = axis_});
    optim::Gradients gradients;
    for (ops::Parameter* parameter : gradient->parameters()) gradients.push_back(parameter->tensor());
    Backward(0);  // for the loads of the experts
    Update(0, gradients);
    return Tree(Parameters());
  }

 private:
  // By one last bit, up or down: what enters no quantized product, so that codes of weights stay as they are.
  void MoveLastBits(int sample) {
    std::set<std::string> quantized;
    for (const quant::SitePlan& site : plan_.sites) {
      if (site.treatment) quantized.insert(site.weight);
    }
    RngKey key = RngKey::FromSeed(static_cast<uint64_t>(sample));
    for (ops::Parameter* parameter : model_->parameters()) {
      key = key.FoldIn(1);
      if (quantized.contains(parameter->name)) continue;
      Tensor moved = parameter->tensor();
      uint64_t index = 0;
      for (float& value : moved.MutableValues<float>()) {
        value = std::nextafter(value, Uniform(key, index++) < 0.5f ? -INFINITY : INFINITY);
      }
    }
  }

  void DryRun(ops::Context& context) {
    const ops::Rows rows = ops::RowsOfBatch(batch_.positions, batch_.segmentation);
    const std::unique_ptr<models::Model> meta = models::MakeModel(model_->config());
    const Tensor ids = Tensor::Meta(batch_.inputs.shape(), batch_.inputs.dtype());
    models::Loss(context, *meta, ids, ids, ids, rows, {.total_weights = 1}, nullptr);
  }

  ops::Context MakeContext() {
    ops::Context context(pool_, isa_, workspace_);
    context.interceptor = provider_.get();
    context.state = &state_;
    return context;
  }

  Tensor Logits() {
    ops::Context context = MakeContext();
    const ops::Rows rows = ops::RowsOfBatch(batch_.positions, batch_.segmentation);
    return model_->Logits(context, models::Forward(context, *model_, batch_.inputs, rows)).value;
  }

  // Gradients of all shards. An accumulation step is a shard; otherwise there is one.
  optim::Gradients Backward(int64_t step) {
    const int64_t shards = settings_.Int("gradient_accumulation_steps");
    parts_ = {};
    SelfCommunicator self;
    optim::GradientTree tree(pool_, isa_, shards);
    updates_.Clear();
    for (int64_t shard = 0; shard < shards; ++shard) tree.Add(shard, BackwardShard(step, shard, shards));
    return tree.Finish(self);
  }

  optim::Gradients BackwardShard(int64_t step, int64_t shard, int64_t shards) {
    const Batch part = batch_.Rows(shard * batch_.rows() / shards, (shard + 1) * batch_.rows() / shards);
    ops::Rows rows = ops::RowsOfBatch(part.positions, part.segmentation);
    rows.global_row = shard * batch_.rows() / shards * batch_.inputs.dim(1);
    ops::Tape tape;
    ops::Context context = MakeContext();
    context.tape = &tape;
    context.updates = &updates_;
    context.remat = &*remat_;
    context.key =
        RngKey::FromSeed(static_cast<uint64_t>(settings_.Int("init_weights_seed"))).FoldIn(static_cast<uint32_t>(step));
    models::LossOptions options;
    options.total_weights = batch_.Weights();
    options.mtp_weights = static_cast<double>(models::MtpWeights(batch_.target_segmentation, model_->mtp_layers()));
    options.shard_share = 1.0 / static_cast<double>(shards);
    options.z_loss_multiplier = settings_.Number("z_loss_multiplier");
    options.vocab_tiling = static_cast<int>(settings_.Int("num_vocab_tiling"));
    models::LossParts parts;
    const ops::Var loss =
        models::Loss(context, *model_, part.inputs, part.targets, part.target_segmentation, rows, options, &parts);
    tape.Run(context, loss, Tensor::FromValues<float>(loss.shape(), DType::kF32, std::vector<float>{1.0f}));
    Add(parts);
    optim::Gradients gradients;
    for (const ops::Parameter* parameter : model_->parameters()) {
      const Tensor grad = tape.Grad(*parameter);
      gradients.push_back(grad.defined() ? grad.Contiguous() : Tensor());
    }
    return gradients;
  }

  void Add(const models::LossParts& parts) {
    parts_.xent_sum += parts.xent_sum;
    parts_.z_loss_sum += parts.z_loss_sum;
    parts_.weights += parts.weights;
    parts_.moe_lb_loss += parts.moe_lb_loss;
    parts_.mtp_loss += parts.mtp_loss;
    if (parts_.loads.empty()) {
      parts_.loads = parts.loads;
      return;
    }
    for (size_t i = 0; i < parts.loads.size(); ++i) {
      for (size_t e = 0; e < parts.loads[i].tokens.size(); ++e) parts_.loads[i].tokens[e] += parts.loads[i].tokens[e];
    }
  }

  // Clips, steps, balances the routers.
  void Update(int64_t step, const optim::Gradients& gradients) {
    raw_norm_ = optim::GlobalNorm(pool_, isa_, names_, gradients);
    const double clip = optim::ClipFactor(raw_norm_, settings_.Number("gradient_clipping_threshold"));
    clipped_norm_ = raw_norm_ * clip;
    optimizer_->Step(pool_, isa_, gradients, schedule_.At(step), clip);
    const double rate = settings_.Number("routed_bias_update_rate");
    if (rate <= 0) return;
    for (const ops::AuxLosses::ExpertLoad& load : parts_.loads) {
      ops::Parameter* bias = model_->parameter_set().Find(load.path + "/gate/bias");
      if (bias == nullptr) continue;
      Tensor moved = bias->tensor();
      optim::UpdateRoutingBias(load.tokens, rate, moved);
    }
  }

  void Step(int64_t step, MaxTextRun& run) {
    const optim::Gradients gradients = Backward(step);
    if (step == 0) {
      std::map<std::string, Tensor> unrolled;
      for (size_t i = 0; i < names_.size(); ++i) {
        const Shape shape = model_->parameters()[i]->shape();
        unrolled[names_[i]] = gradients[i].defined() ? gradients[i].Clone() : Tensor::Zeros(shape, DType::kF32);
      }
      run.gradients = Tree(unrolled);
    }
    Update(step, gradients);
    if (moves_) quant::AdvanceState(plan_, updates_, state_);
    if (step == 0) run.step1 = Tree(Parameters());
    const double divisor = parts_.weights + 1e-8, lm_loss = parts_.xent_sum / divisor;
    std::vector<Tensor> values;
    for (const ops::Parameter* parameter : model_->parameters()) values.push_back(parameter->tensor());
    const std::map<std::string, double> metrics = {{"lm_loss", lm_loss},
                                                   {"loss", lm_loss + parts_.moe_lb_loss + parts_.mtp_loss},
                                                   {"perplexity", std::exp(lm_loss)},
                                                   {"z_loss", parts_.z_loss_sum / divisor},
                                                   {"moe_lb_loss", parts_.moe_lb_loss},
                                                   {"mtp_loss", parts_.mtp_loss},
                                                   {"indexer_loss", 0.0},
                                                   {"total_weights", parts_.weights},
                                                   {"raw_grad_norm", raw_norm_},
                                                   {"grad_norm", clipped_norm_},
                                                   {"param_norm", optim::GlobalNorm(pool_, isa_, names_, values)},
                                                   {"learning_rate", schedule_.At(step)}};
    for (const auto& [name, value] : metrics) run.metrics[name].push_back(value);
  }

  std::map<std::string, Tensor> Parameters() const {
    std::map<std::string, Tensor> values;
    for (const ops::Parameter* parameter : model_->parameters()) values[parameter->name] = parameter->tensor().Clone();
    return values;
  }
  std::map<std::string, Tensor> Tree(const std::map<std::string, Tensor>& unrolled) const {
    return weights::ToMaxTextTree(unrolled, scanned_, axis_, "");
  }

  const MaxTextCase& case_;
  const Settings& settings_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  kernels::Workspace workspace_;
  Batch batch_;
  std::unique_ptr<models::Model> model_;
  optim::Schedule schedule_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  quant::Plan plan_;
  std::unique_ptr<quant::Provider> provider_;
  std::optional<ops::RematPolicy> remat_;
  ops::StateStore state_;
  ops::UpdateSink updates_;
  models::LossParts parts_;
  std::vector<std::string> names_;
  int axis_ = 1;
  bool scanned_ = true, moves_ = false;
  double raw_norm_ = 0, clipped_norm_ = 0;
};

}  // namespace

MaxTextRun TrainMaxTextCase(const MaxTextCase& one, const Settings& settings, const MaxTextRecipe& recipe,
                            ThreadPool& pool, int sample) {
  MaxTextRun run = Trainer(one, settings, recipe, pool, sample).Run();
  run.step1_of_recorded = Trainer(one, settings, recipe, pool).StepOnRecordedGradients();
  return run;
}

}  // namespace octavo
