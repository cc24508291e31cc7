#include "bench/engine_model.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "bench/common/random_model.h"
#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/checkpoint/codes.h"
#include "octavo/weights/gguf_export.h"
#include "octavo/weights/load_model.h"

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Tensor AnyWeight(const Shape& shape, uint64_t seed) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  UniformWeights next(seed);
  for (float& value : result.MutableValues<float>()) value = next();
  return result;
}

TensorEntry EntryOf(const std::string& name, const Tensor& tensor) {
  return {name, std::string(SafetensorsType(tensor.dtype())), {tensor.shape().begin(), tensor.shape().end()}};
}

}  // namespace

quant::RecipeChoice BenchRecipe(const std::string& name) {
  const std::map<std::string, std::string> kinds = {
      {"int8", "weight_qtype: int8, act_qtype: int8"},
      {"int8w", "weight_qtype: int8"},
      {"int4w", "weight_qtype: int4"},
      {"w4a8", "grouped: {weight: int4, activation: int8, group: 0}"},
      {"w4a8g64", "grouped: {weight: int4, activation: int8, group: 64}"},
      {"w4a8g32", "grouped: {weight: int4, activation: int8, group: 32}"}};
  if (name == "float") return {};
  const auto at = kinds.find(name);
  if (at == kinds.end()) ThrowUsage("recipe {}: int8, int8w, int4w, w4a8, w4a8g64, w4a8g32 or float", name);
  const std::string text = "name: " + name + "\nrules:\n  - {only_weights: true, " + at->second + "}\n";
  return quant::RestoreRecipe(name, text, {}, "", "bench");
}

BenchModel::BenchModel(const std::string& recipe, int64_t layers, ThreadPool& pool)
    : pool_(pool), isa_(kernels::ChooseIsa().isa), name_(recipe), recipe_(BenchRecipe(recipe)) {
  model_ = models::MakeModel(RandomLlama(layers));
  plan_ = weights::ForwardPlan(*model_, recipe_.rules);
  const auto sites = weights::FrozenParameters(*model_, *plan_);
  uint64_t seed = 0;
  for (ops::Parameter* parameter : model_->parameters()) {
    const Tensor weight = AnyWeight(parameter->shape(), ++seed);
    parameters_ += weight.size();
    parameter->value = weight;
    const auto site = sites.find(parameter->name);
    if (site != sites.end()) parameter->value = weights::FreezeFor(*site->second, weight, {}, pool_, isa_);
  }
}

void BenchModel::WriteGguf(const std::filesystem::path& file) const {
  std::map<std::string, const ops::Parameter*> by_name;
  for (const ops::Parameter* parameter : model_->parameters()) by_name[parameter->name] = parameter;
  const auto read = [&](const std::string& name) -> std::variant<Tensor, QArray> {
    const ops::Parameter& parameter = *by_name.at(name);
    if (parameter.frozen()) return parameter.qarray();
    return parameter.tensor();
  };
  FilePublisher target(file);
  GgufWriter writer([&](std::span<const std::byte> bytes) { target.Write(bytes); });
  weights::GgufExportOptions options;
  options.dtype = DType::kF16;
  options.name = "random-llama";
  options.more_keys = [](GgufWriter& keys) { keys.Text("tokenizer.ggml.model", "none"); };
  weights::ExportGguf(model_->config(), read, options, writer);
  target.Publish();
}

void BenchModel::WriteCheckpoint(const std::filesystem::path& folder) const {
  std::vector<PlannedParameter> planned;
  for (const ops::Parameter* parameter : model_->parameters()) {
    planned.push_back({parameter->name, parameter->shape().size() * (parameter->frozen() ? 1 : 4)});
  }
  CheckpointWriter writer(folder, planned, {});
  for (const ops::Parameter* parameter : model_->parameters()) {
    std::vector<std::pair<TensorEntry, Tensor>> tensors;
    if (parameter->frozen()) {
      for (EncodedTensor& part : EncodeCodes(parameter->name, parameter->qarray())) {
        tensors.emplace_back(std::move(part.entry), part.bytes);
      }
      writer.manifest().quantized[parameter->name] = DescribeCodes(parameter->qarray());
    } else {
      tensors.emplace_back(EntryOf(parameter->name, parameter->tensor()), parameter->tensor());
    }
    writer.Add(parameter->name, tensors);
  }
  Manifest& manifest = writer.manifest();
  manifest.kind = manifest.quantized.empty() ? "params" : "quantized";
  manifest.model = weights::ModelToJson(model_->config()).dump();
  manifest.recipe = recipe_.text;
  manifest.recipe_name = recipe_.name;
  writer.Close();
  writer.Publish();
}

void BenchModel::Pack(int64_t sequences) {
  provider_.emplace(*plan_);
  const engine::RunnerParts parts{*model_, &*provider_, nullptr, pool_, isa_};
  const auto start = Clock::now();
  provider_->StartStep();
  packed_ = engine::PackWeights(parts, *provider_);
  pack_seconds_ = Since(start);
  runner_ = engine::MakeRunner(parts, {.sequences = sequences, .prefix_cache = false});
}

double BenchModel::KvBytesOfToken() const {
  return static_cast<double>(engine::PageBytes(*model_, {})) / static_cast<double>(runner_->page_tokens());
}

double BenchModel::WeightBytes() const {
  return static_cast<double>(packed_.bytes) -
         4.0 * static_cast<double>(model_->config().vocab_size * model_->config().emb_dim);
}

double BenchModel::Prefill(int64_t tokens) {
  const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 7);
  const engine::SequenceId id = runner_->Open(prompt, 0, "", nullptr);
  const engine::Work work{id, prompt};
  const auto start = Clock::now();
  runner_->Step({&work, 1});
  const double seconds = Since(start);
  runner_->Close(id);
  return seconds;
}

std::vector<engine::SequenceId> BenchModel::OpenStreams(int streams) {
  const std::vector<int32_t> prompt(128, 7);
  std::vector<engine::SequenceId> ids;
  for (int i = 0; i < streams; ++i) {
    ids.push_back(runner_->Open(prompt, 0, "", nullptr));
    const engine::Work work{ids.back(), prompt};
    runner_->Step({&work, 1});
  }
  return ids;
}

double BenchModel::Step(const std::vector<engine::SequenceId>& streams) {
  const std::vector<int32_t> one = {9};
  std::vector<engine::Work> work;
  for (engine::SequenceId id : streams) work.push_back({id, one});
  const auto start = Clock::now();
  runner_->Step(work);
  return Since(start);
}

double BenchModel::Decode(int streams, int steps) {
  const std::vector<engine::SequenceId> ids = OpenStreams(streams);
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) seconds.push_back(Step(ids));
  for (engine::SequenceId id : ids) runner_->Close(id);
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::vector<ReadTurn> BenchModel::DecodeBesideReads(int turns, kernels::ReadMeter& reads) {
  const std::vector<engine::SequenceId> ids = OpenStreams(1);
  std::vector<ReadTurn> result;
  double before = reads.Read();
  for (int turn = 0; turn < turns; ++turn) {
    const double first = Step(ids), seconds = first + Step(ids), after = reads.Read();
    const double behind = static_cast<double>(runner_->length(ids[0])) - 0.5;  // of the two steps, itself included
    result.push_back({2 / seconds, WeightBytes() / 1e9, behind * KvBytesOfToken() / 1e9, (before + after) / 2});
    before = after;
  }
  runner_->Close(ids[0]);
  return result;
}

}  // namespace octavo::bench
