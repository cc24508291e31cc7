// The random llama of `./run bench engine`: made in memory under a recipe, written as a GGUF file for the peer and as a
// checkpoint for the loader, and run through the engine's runner. The codes are random: speed does not depend on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/engine/model_runner.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/kernels/limits.h"
#include "octavo/models/model.h"
#include "octavo/quant/provider.h"
#include "octavo/quant/recipe_choice.h"

namespace octavo::bench {

// Every weight, the head included: int8, int8w, int4w, w4a8 (a scale per channel), w4a8g64, w4a8g32, float.
quant::RecipeChoice BenchRecipe(const std::string& name);

// Two steps of one stream, what each has to read (weights, and the keys and values behind it), and what reads reached
// just before and just after them.
struct ReadTurn {
  double tok_per_s, weight_gb, kv_gb, read_gb_per_s;

  double share() const { return (weight_gb + kv_gb) * tok_per_s / read_gb_per_s; }
  double share_of_weights() const { return weight_gb * tok_per_s / read_gb_per_s; }
};

class BenchModel {
 public:
  BenchModel(const std::string& recipe, int64_t layers, ThreadPool& pool);

  // Both before Pack: they need the codes. The GGUF file has no vocabulary; Q8_0 for int8 and Q4_0 for int4.
  void WriteGguf(const std::filesystem::path& file) const;
  void WriteCheckpoint(const std::filesystem::path& folder) const;

  // Weights into the form that products stream; from here on it runs.
  void Pack(int64_t sequences);

  double Prefill(int64_t tokens);         // seconds
  double Decode(int streams, int steps);  // median seconds of a step, 128 tokens behind each stream
  // One stream, 128 tokens behind it: two steps and a measurement of the reads, in turns.
  std::vector<ReadTurn> DecodeBesideReads(int turns, kernels::ReadMeter& reads);

  engine::Runner& runner() { return *runner_; }
  int64_t parameters() const { return parameters_; }
  int64_t stored_bytes() const { return packed_.bytes; }
  double pack_seconds() const { return pack_seconds_; }

 private:
  ThreadPool& pool_;
  kernels::Isa isa_;
  std::string name_;
  quant::RecipeChoice recipe_;
  std::unique_ptr<models::Model> model_;
  std::optional<quant::Plan> plan_;
  std::optional<quant::Provider> provider_;
  std::unique_ptr<engine::Runner> runner_;
  engine::PackedModel packed_;
  // Streams with 128 tokens behind them; a step of all of them in seconds.
  std::vector<engine::SequenceId> OpenStreams(int streams);
  double Step(const std::vector<engine::SequenceId>& streams);
  // What one decode step has to read: all weights but the table of the embedding, which is looked up, and the keys and
  // values of one token behind a stream.
  double WeightBytes() const;
  double KvBytesOfToken() const;

  double pack_seconds_ = 0;
  int64_t parameters_ = 0;
};

}  // namespace octavo::bench
