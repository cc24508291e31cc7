#include "octavo/train/trainer.h"

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/progress.h"
#include "octavo/data/unigram.h"
#include "octavo/ops/profile.h"
#include "octavo/train/divergence.h"
#include "octavo/train/run_log.h"
#include "octavo/train/session.h"

namespace octavo::train {
namespace {

class Loop {
 public:
  Loop(const TrainRequest& request, Session& session)
      : request_(request), session_(session), options_(session.options()), schedule_(options_.schedule) {
    summary_.run = session.run_path();
    summary_.first_step = summary_.steps = session.first_step();
    if (session.resumed()) saved_at_ = session.first_step();
    if (session.is_first_rank()) {
      log_.emplace(request.log, session.folder(),
                   RunLogOptions{.first_step = session.first_step(),
                                 .steps = options_.steps,
                                 .tensorboard = options_.tensorboard,
                                 .metrics_file = options_.metrics_file,
                                 .json = request.json});
    }
  }

  TrainSummary Run() {
    if (summary_.steps == 0 && options_.checkpoint_on_start) Save();
    bool going = !Interrupted();  // making the model takes its time
    while (going && summary_.steps < options_.steps) going = Step();
    if (summary_.exit_code == 0 && !stopped_) {
      if (options_.eval_interval > 0 && evaluated_at_ != summary_.steps) Evaluate();
      if (options_.checkpoint_on_completion) Save();
    }
    session_.store().Wait();
    ShowSaved();
    summary_.bits = BitsOf(session_.state());
    summary_.profile = profile_;
    for (const quant::SitePlan& site : session_.parts().plan.sites) {
      if (site.treatment) summary_.quantized.push_back(site.site.path);
    }
    return summary_;
  }

  std::optional<RunLog>& log() { return log_; }
  const std::filesystem::path& last_checkpoint() const { return last_checkpoint_; }
  int64_t tokens() const { return tokens_; }
  bool stopped() const { return stopped_; }  // from outside, before the last step

 private:
  // False when the run must end.
  bool Step() {
    const int64_t step = summary_.steps;
    double start = Progress::SteadySeconds();
    ops::Profile* profile = options_.profile && step > summary_.first_step ? &profile_ : nullptr;
    data::Batch batch;
    {
      const ops::Timed timed(profile, "data", "data", "forward");
      batch = session_.data().Next();
    }
    for (const std::unique_ptr<Shadow>& shadow : session_.shadows()) {
      if (!shadow->IsDue(step)) continue;
      const double before = Progress::SteadySeconds();
      shadow->Measure(batch, step);
      start += Progress::SteadySeconds() - before;  // a measurement, like an evaluation, and no part of the step
    }
    session_.health().BeforeStep(step, request_.communicator.rank());
    const StepResult result = session_.stepper().Compute(batch, step, profile);
    session_.health().AfterStep(step, request_.communicator);
    session_.health().Pause();
    if (const std::string reason = WhatBroke(result, options_); !reason.empty()) return Broke(step, reason, batch);
    const double rate = schedule_.At(step);
    const double param_norm = session_.stepper().Apply(rate, profile);
    ++summary_.steps;
    Show(step, result, {rate, param_norm, Progress::SteadySeconds() - start});
    ShowHealth(step);
    if (options_.checkpoint_period > 0 && summary_.steps % options_.checkpoint_period == 0) Save();
    if (options_.eval_interval > 0 && summary_.steps % options_.eval_interval == 0 &&
        summary_.steps >= options_.eval_start) {
      Evaluate();
      if (options_.target_eval_loss > 0 && summary_.last_eval_loss <= options_.target_eval_loss) {
        if (log_)
          log_->Note(
              fmt::format("reached target_eval_loss={} after {} steps", options_.target_eval_loss, summary_.steps));
        return false;
      }
    }
    ShowSaved();
    return !Interrupted();
  }

  // What is known of a step when its parameters are updated.
  struct Updated {
    double rate, param_norm, seconds;
  };
  void Show(int64_t step, const StepResult& result, const Updated& updated) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.seconds = updated.seconds;
    metrics.tflops = session_.flops().total();
    metrics.tokens = options_.rows * options_.length;
    metrics.total_weights = result.total_weights;
    metrics.loss = result.loss;
    metrics.lm_loss = result.lm_loss;
    metrics.z_loss = result.z_loss;
    const models::ModelConfig& config = session_.parts().model.config();
    if (config.num_experts > 1) metrics.moe_lb_loss = result.moe_lb_loss;
    if (config.mtp_num_layers > 0) metrics.mtp_loss = result.mtp_loss;
    metrics.raw_grad_norm = result.raw_grad_norm;
    metrics.grad_norm = result.grad_norm;
    metrics.param_norm = updated.param_norm;
    metrics.learning_rate = updated.rate;
    tokens_ += metrics.tokens;
    if (step == summary_.first_step) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
    if (log_) log_->Step(metrics);
    const double sigma = recent_.SigmaAbove(result.loss);
    if (sigma > 6 && log_) {
      request_.log.Warning("step {}: loss {:.3f} is {:.0f} standard deviations above the last {}", step, result.loss,
                           sigma, recent_.figures().size());
    }
    recent_.Add({step, result.loss, result.raw_grad_norm});
    if (request_.on_step) request_.on_step(metrics);
  }

  void ShowHealth(int64_t step) {
    if (!log_) return;
    for (const std::unique_ptr<Shadow>& shadow : session_.shadows()) {
      if (shadow->IsDue(step)) Write(step, shadow->health());
    }
    if (session_.recipe().name.empty()) return;
    Write(step, session_.health());
    for (const std::string& warning : session_.health().NewWarnings()) {
      request_.log.Warning("step {}: {}", step, warning);
    }
  }

  void Write(int64_t step, const HealthLog& health) {
    const std::vector<std::string> lines = health.Lines(step);
    if (!quant_ && !lines.empty()) quant_.emplace(session_.folder().quant(), summary_.first_step);
    for (const std::string& line : lines) quant_->Add(line);
    log_->Extra(step, health.TensorBoardScalars());
  }

  bool Broke(int64_t step, const std::string& reason, const data::Batch& batch) {
    session_.store().Wait();
    ShowSaved();
    const DivergenceInput input{step,
                                reason,
                                last_checkpoint_.empty() ? NewestCheckpoint() : last_checkpoint_.filename().string(),
                                session_.recipe().name,
                                request_.settings,
                                options_,
                                session_.health(),
                                recent_};
    const std::string report = DivergenceReport(session_.stepper(), session_.parts(), batch, input);
    if (log_) {
      log_->EndBar();
      log_->Stopped(report.substr(0, report.size() - 1));
      log_->Json(nlohmann::ordered_json({{"event", "stopped"}, {"step", step}, {"reason", reason}, {"report", report}})
                     .dump());
    }
    summary_.exit_code = static_cast<int>(ErrorCode::kNumbers);
    return false;
  }

  std::string NewestCheckpoint() const {
    const std::vector<int64_t> steps = session_.store().Steps();
    return steps.empty() ? "" : std::to_string(steps.back());
  }

  // What asks this rank to stop: a signal; SIGPIPE when nobody can be told the events any more.
  int WantsToStop() const {
    if (const int signal = request_.signal ? request_.signal() : 0; signal != 0) return signal;
    return log_ && log_->json_problem() != 0 ? SIGPIPE : 0;
  }

  // Asks all ranks, so that they stop at the same step.
  bool Interrupted() {
    std::vector<float> signal = {static_cast<float>(WantsToStop())};
    request_.communicator.AllReduceMax(signal);
    const int number = static_cast<int>(signal[0]);
    if (number == 0) return false;
    if (log_) log_->EndBar();
    Save();
    session_.store().Wait();
    ShowSaved();
    stopped_ = true;
    if (number != SIGPIPE) summary_.exit_code = 128 + number;
    if (log_) ShowStopped(number);
    return true;
  }

  void ShowStopped(int number) {
    const int problem = log_->json_problem();
    if (number == SIGPIPE && problem != EPIPE) {
      summary_.exit_code = static_cast<int>(ErrorCode::kJob);
      request_.log.Error("cannot write the events to standard output: {}", std::strerror(problem));
    }
    const char* events = problem == EPIPE ? "nobody reads the events any more" : "the events cannot be written";
    const char* why = number == SIGTERM   ? "SIGTERM"
                      : number == SIGHUP  ? "SIGHUP"
                      : number == SIGPIPE ? events
                                          : "interrupted";
    const std::string resume = fmt::format("octavo train {}", session_.folder().config().string());
    const std::string text = fmt::format(
        "stopped   {} after {} of {} steps\n          {}", why, summary_.steps, options_.steps,
        options_.checkpoints ? "resume: " + resume : std::string("nothing was saved: enable_checkpointing=false"));
    if (summary_.exit_code == 0) {
      log_->Note(text);
    } else {
      log_->Stopped(text);
    }
    nlohmann::ordered_json event = {{"event", "stopped"}, {"step", summary_.steps}, {"reason", why}};
    if (options_.checkpoints) event["resume"] = resume;
    log_->Json(event.dump());
  }

  void Save() {
    if (!options_.checkpoints || !session_.is_first_rank() || saved_at_ == summary_.steps) return;
    session_.store().Save(session_.Content(summary_.steps));
    saved_at_ = summary_.steps;
  }

  void ShowSaved() {
    for (const SavedCheckpoint& saved : session_.store().Completed()) {
      last_checkpoint_ = saved.path;
      if (log_) log_->Saved(saved);
    }
  }

  void Evaluate() {
    const std::unique_ptr<data::BatchSource> source = session_.OpenEval();
    EvalMetrics metrics;
    metrics.step = summary_.steps;
    double xent = 0, z_loss = 0, moe = 0, mtp = 0;
    const int64_t shard_rows = options_.rows / options_.shards;
    const int64_t shards = options_.eval_rows % shard_rows == 0 ? options_.eval_rows / shard_rows : options_.eval_rows;
    while (!source->Done() && (options_.eval_steps == 0 || metrics.steps < options_.eval_steps)) {
      const models::LossParts parts = session_.stepper().Evaluate(source->Next(), shards);
      xent += parts.xent_sum;
      z_loss += parts.z_loss_sum;
      moe += parts.moe_lb_loss;
      mtp += parts.mtp_loss;
      metrics.total_weights += parts.weights;
      ++metrics.steps;
    }
    const auto batches = static_cast<double>(std::max<int64_t>(metrics.steps, 1));
    metrics.z_loss = z_loss / (metrics.total_weights + 1e-8);
    metrics.loss = xent / (metrics.total_weights + 1e-8) + moe / batches + mtp / batches;
    if (session_.parts().model.config().num_experts > 1) metrics.moe_lb_loss = moe / batches;
    summary_.last_eval_loss = metrics.loss;
    evaluated_at_ = summary_.steps;
    if (log_) log_->Eval(metrics);
  }

  const TrainRequest& request_;
  Session& session_;
  const TrainOptions& options_;
  optim::Schedule schedule_;
  std::optional<RunLog> log_;
  std::optional<JsonLinesFile> quant_;
  RecentSteps recent_;
  ops::Profile profile_;
  TrainSummary summary_;
  std::filesystem::path last_checkpoint_;
  int64_t saved_at_ = -1, evaluated_at_ = -1, tokens_ = 0;
  bool stopped_ = false;
};

void ShowDone(const TrainRequest& request, Session& session, const TrainSummary& summary, Loop& loop) {
  RunLog& log = *loop.log();
  log.EndBar();
  if (!summary.profile.entries().empty()) log.Note(summary.profile.Table());
  if (summary.exit_code != 0 || loop.stopped()) return;
  const std::string health = session.health().Summary();
  log.Note(fmt::format("done      {} step{}   {} tokens   loss {:.3f} -> {:.3f}{}{}   bits {}",
                       summary.steps - summary.first_step, summary.steps - summary.first_step == 1 ? "" : "s",
                       loop.tokens(), summary.first_loss, summary.last_loss,
                       summary.last_eval_loss > 0 ? fmt::format("   eval loss {:.3f}", summary.last_eval_loss) : "",
                       health.empty() ? "" : "   " + health, summary.bits.substr(0, 12)));
  for (const std::unique_ptr<Shadow>& shadow : session.shadows()) {
    if (shadow->has_measured()) log.Note(fmt::format("shadow    {}", shadow->Summary()));
  }
  if (summary.last_eval_loss > 0) {
    const data::UnigramEntropy unigram =
        data::MeasureUnigram(request.settings, session.DataOptionsOf(session.options().eval_rows));
    log.Note(fmt::format("          held-out loss {:.3f}, unigram entropy {:.3f} nats per token",
                         summary.last_eval_loss, unigram.nats));
  }
  if (request.next_command) {
    log.Note(fmt::format("          next: {}", request.next_command(summary.run, loop.last_checkpoint())));
  }
  log.Json(nlohmann::ordered_json({{"event", "done"},
                                   {"steps", summary.steps},
                                   {"loss", summary.last_loss},
                                   {"bits", summary.bits},
                                   {"run", summary.run.string()}})
               .dump());
}

}  // namespace

TrainSummary Train(const TrainRequest& request) {
  Session session(request);
  if (session.first_step() >= session.options().steps) {
    TrainSummary summary;
    summary.run = session.run_path();
    summary.first_step = summary.steps = session.first_step();
    summary.bits = BitsOf(session.state());
    if (session.is_first_rank()) {
      request.log.Info("done      all {} steps of this run were made before", session.options().steps);
    }
    return summary;
  }
  Loop loop(request, session);
  const TrainSummary summary = loop.Run();
  if (session.is_first_rank()) ShowDone(request, session, summary, loop);
  request.communicator.Barrier();
  // What was said after the last step: everything is saved, but a script that reads the events must know.
  const int problem = loop.log() && !loop.stopped() ? loop.log()->json_problem() : 0;
  if (problem != 0 && problem != EPIPE && summary.exit_code == 0) {
    throw Error(ErrorCode::kJob, fmt::format("cannot write the events to standard output: {}", std::strerror(problem)));
  }
  return summary;
}

}  // namespace octavo::train
