// One contender of the training benchmark: a training run of a fixed size in a process of its own, so that its peak
// memory is its own and contenders can take turns. Prints one JSON object; the parent reads it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo::bench {

struct TrainSize {
  std::string name;  // "S", "M"
  int emb, layers, heads, mlp, vocab, rows, length;
};

const TrainSize& TrainSizeByName(const std::string& name);

// The settings of a size: a llama-like decoder, float32, no recomputation, synthetic data.
std::vector<std::string> TrainWords(const TrainSize& size, const std::string& recipe, int steps,
                                    const std::string& folder);

struct TrainMeasurement {
  std::string contender;
  std::vector<double> seconds;  // of each timed step
  double peak_bytes = 0;
  double outside_share = 0;                    // of the time, neither matmul nor attention; 0 when it is not known
  std::map<std::string, double> site_seconds;  // of matmuls, per step, forward and backward
  std::vector<std::string> quantized_sites;    // that the recipe quantizes
  double attributed_share = 0;                 // of the step time that the profile accounts for
  double loss = 0;
  std::string profile;  // the table
  std::string skipped;  // why there is no measurement
};

// Runs `steps` timed steps after one that warms up, and prints the measurement.
int RunOneTraining(const std::string& size, const std::string& recipe, int steps, int threads);

// What quant_stats=light costs under each recipe, printed; 3 when it is over 1 % of a step.
int RunStatsCost(const std::string& size, const std::vector<std::string>& recipes, int steps, int threads);

// Runs the command and reads what it printed.
TrainMeasurement Measure(const std::vector<std::string>& command);

}  // namespace octavo::bench
