// The numbers of one training step or one evaluation, and how they are shown: the reference's log line, TensorBoard
// tags with the reference's names, and JSON lines. Plain data and formatting; measuring is the trainer's business.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/train/event_file.h"

namespace octavo::train {

struct StepMetrics {
  int64_t step = 0;
  double seconds = 0;
  double tflops = 0;   // of the step, as the reference counts them
  int64_t tokens = 0;  // of the step, padding included
  double total_weights = 0;
  double loss = 0, lm_loss = 0;
  double z_loss = 0;
  std::optional<double> moe_lb_loss, mtp_loss;  // where the model has such losses
  double raw_grad_norm = 0, grad_norm = 0, param_norm = 0;
  double learning_rate = 0;
};

struct EvalMetrics {
  int64_t step = 0;   // training steps made
  int64_t steps = 0;  // batches
  double loss = 0, z_loss = 0, total_weights = 0;
  std::optional<double> moe_lb_loss, mtp_loss;
};

// exp(lm_loss), as the reference computes it, in f32: infinite from 88.73 on, which is no reason to stop.
double Perplexity(double lm_loss);

// "completed step: 0, seconds: 3.333, TFLOP/s/device: 0.000, Tokens/s/device: 19.200, total_weights: 64, loss: …"
std::string StepLine(const StepMetrics& metrics);
// "Completed eval after train step 20, loss=3.115, perplexity=22.53, total_weights=65536.0, avg_z_loss=0.000"
std::string EvalLine(const EvalMetrics& metrics);

Scalars TensorBoardScalars(const StepMetrics& metrics);
Scalars TensorBoardScalars(const EvalMetrics& metrics);

// One JSON object without a line break: {"event":"step","step":0,…}. Numbers that are not finite are strings.
std::string JsonLine(const StepMetrics& metrics);
std::string JsonLine(const EvalMetrics& metrics);

}  // namespace octavo::train
