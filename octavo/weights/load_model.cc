#include "octavo/weights/load_model.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "octavo/base/check.h"
#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/fault_list.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/parameter_reader.h"

namespace octavo::weights {
namespace {

// Raised whenever the same weights under the same recipe give other bits than before.
constexpr int kNumericsVersion = 1;

// What is wrong with the values of parameters, all of it at once; empty texts for those that are good.
void ThrowFaults(const std::string& where, const std::vector<std::string>& faults) {
  FaultList list;
  for (const std::string& fault : faults) {
    if (!fault.empty()) list.Add(fault);
  }
  if (list.count() == 0) return;
  throw Error(ErrorCode::kFile,
              fmt::format("{}: {} of its tensors {} damaged; nothing was loaded", where, list.count(),
                          list.count() == 1 ? "is" : "are"),
              list.Text() + "copy or make it again");
}

void UpdateText(Digest& digest, std::string_view text) {
  digest.Update(std::as_bytes(std::span(text)));
  digest.Update(std::as_bytes(std::span("\n", 1)));
}

void UpdateTensor(Digest& digest, const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  UpdateText(digest, fmt::format("{}{}", NameOf(packed.dtype()), packed.shape()));
  digest.Update({packed.RawData(), static_cast<size_t>(packed.bytes())});
}

int64_t BytesOf(const ops::Parameter& parameter) {
  if (!parameter.frozen()) return parameter.tensor().bytes();
  const QArray& codes = parameter.qarray();
  return codes.qvalue.bytes() + codes.scale.bytes() + (codes.zero_point ? codes.zero_point->bytes() : 0);
}

// The architecture without what changes no logit: names, lengths, types that the tensors show, how layers are stored,
// what only training reads.
std::string ArchitectureOf(const models::ModelConfig& config) {
  nlohmann::ordered_json json = ModelToJson(config);
  for (const char* name : {"model_name", "dtype", "weight_dtype", "max_target_length", "scan_layers", "param_scan_axis",
                           "dense_init_scale", "dropout_rate", "enable_dropout", "use_iota_embed", "megablox",
                           "routed_bias_update_rate", "load_balance_loss_weight", "mtp_loss_scaling_factor"}) {
    OCTAVO_CHECK(json.erase(name) == 1);
  }
  return json.dump();
}

// The layers of a stack one after another: the stack is kept in memory from its first layer to its last.
std::vector<ops::Parameter*> InOrderOfStacks(const StoredModel& stored, models::Model& model) {
  std::vector<ops::Parameter*> parameters(model.parameters().begin(), model.parameters().end());
  std::stable_sort(parameters.begin(), parameters.end(), [&](const ops::Parameter* a, const ops::Parameter* b) {
    return stored.floats.tensors.at(a->name).stack < stored.floats.tensors.at(b->name).stack;
  });
  return parameters;
}

// Runs work(i) for each parameter, by all threads.
template <typename Work>
void ForEach(ThreadPool& pool, size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  pool.Run([&](int, int) {
    for (size_t i; (i = next.fetch_add(1)) < count;) work(i);
  });
}

void ReadAll(ParameterReader& reader) {
  const std::vector<ops::Parameter*> parameters = InOrderOfStacks(reader.stored(), reader.model());
  std::vector<std::string> faults(parameters.size());
  const auto read = [&](size_t i) {
    try {
      parameters[i]->value = reader.Read(parameters[i]->name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kFile) throw;
      faults[i] = error.message();
    }
  };
  if (reader.ReadsTogether()) {
    ForEach(reader.pool(), parameters.size(), read);
  } else {
    for (size_t i = 0; i < parameters.size(); ++i) read(i);
  }
  ThrowFaults(reader.stored().path.string(), faults);
}

std::string DigestOf(const ops::Parameter& parameter) {
  Digest digest;
  UpdateText(digest, parameter.name);
  if (parameter.frozen()) {
    const QArray& codes = parameter.qarray();
    UpdateText(digest, Info(codes.format).name);
    UpdateTensor(digest, codes.qvalue);
    UpdateTensor(digest, codes.scale);
    if (codes.zero_point) UpdateTensor(digest, *codes.zero_point);
  } else {
    UpdateTensor(digest, parameter.tensor());
  }
  return digest.Hex();
}

std::string FingerprintOf(const ParameterReader& reader, const ops::StateStore& state) {
  const models::Model& model = reader.model();
  const quant::RecipeChoice* recipe = reader.recipe();
  Digest digest;
  UpdateText(digest, fmt::format("numerics {}", kNumericsVersion));
  UpdateText(digest, NameOf(model.config().dtype));
  UpdateText(digest, ArchitectureOf(model.config()));
  if (recipe != nullptr) {
    UpdateText(digest, recipe->text);
    UpdateText(digest, recipe->mixed);
    for (const auto& [name, value] : recipe->given) UpdateText(digest, name + "=" + value);
  }
  for (const auto& [name, value] : state.values()) {
    UpdateText(digest, name);
    UpdateTensor(digest, value);
  }
  const auto parameters = model.parameters();
  std::vector<std::string> digests(parameters.size());
  ForEach(reader.pool(), digests.size(), [&](size_t i) { digests[i] = DigestOf(*parameters[i]); });
  for (const std::string& one : digests) UpdateText(digest, one);
  return digest.Hex();
}

}  // namespace

LoadedModel LoadModel(const StoredModel& stored, const LoadOptions& options, ThreadPool& pool, kernels::Isa isa) {
  ParameterReader reader(stored, options, pool, isa);
  return LoadModel(reader);
}

LoadedModel LoadModel(ParameterReader& reader) {
  const StoredModel& stored = reader.stored();
  LoadedModel loaded;
  loaded.state = reader.ServingState();
  loaded.notes = stored.notes;
  if (reader.recipe() != nullptr) {
    loaded.recipe_name = reader.recipe()->name;
    loaded.recipe_text = reader.recipe()->text;
  }
  ReadAll(reader);
  for (const ops::Parameter* parameter : reader.model().parameters()) loaded.parameter_bytes += BytesOf(*parameter);
  loaded.fingerprint = FingerprintOf(reader, loaded.state);
  loaded.model = reader.TakeModel();
  loaded.plan = reader.TakePlan();
  return loaded;
}

void LoadFloats(const StoredModel& stored, models::Model& model) {
  std::vector<Tensor> values;
  std::vector<std::string> faults;
  for (const ops::Parameter* parameter : model.parameters()) {
    try {
      const Tensor value = stored.floats.tensors.at(parameter->name).read();
      const DType dtype = parameter->tensor().dtype();
      values.push_back(value.dtype() == dtype ? value.Contiguous() : ConvertFloats(value, dtype));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kFile) throw;
      faults.push_back(error.message());
    }
  }
  ThrowFaults(stored.path.string(), faults);
  for (size_t i = 0; i < values.size(); ++i) model.parameters()[i]->value = values[i];
}

}  // namespace octavo::weights
