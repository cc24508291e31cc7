#include "octavo/convert/write_octavo.h"

#include <map>
#include <nlohmann/json.hpp>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/base/progress.h"
#include "octavo/checkpoint/codes.h"
#include "octavo/convert/background_writer.h"
#include "octavo/convert/measure.h"
#include "octavo/quant/plan.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/maxtext_names.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/restore.h"

namespace octavo::convert {
namespace {

// What one entry of the target is made of: a parameter, or all layers of a stack.
using Parts = std::vector<std::pair<std::string, std::vector<std::string>>>;

bool KeepsCodes(const ConvertRequest& request, const weights::ParameterReader& reader, const std::string& name) {
  return !request.parameters_only && reader.HoldsCodes(name);
}

DType FloatType(const ConvertRequest& request, const std::string& name) {
  return request.dtype.value_or(request.source.floats.tensors.at(name).dtype);
}

// In the order of the model; a stack where its first layer stands.
Parts PartsOf(const ConvertRequest& request, weights::ParameterReader& reader) {
  Parts parts;
  std::map<std::string, size_t> stacks;
  for (const ops::Parameter* parameter : reader.model().parameters()) {
    const std::optional<weights::StackedName> stacked =
        request.tree.scanned ? weights::ScannedNameOf(parameter->name) : std::nullopt;
    const std::string name = request.tree.collection + (stacked ? stacked->name : parameter->name);
    if (stacked && stacks.contains(name)) {
      parts[stacks[name]].second.push_back(parameter->name);
      continue;
    }
    if (stacked) stacks[name] = parts.size();
    parts.push_back({name, {parameter->name}});
  }
  return parts;
}

TensorEntry EntryOf(const std::string& name, const Tensor& tensor) {
  return {name, std::string(SafetensorsType(tensor.dtype())), {tensor.shape().begin(), tensor.shape().end()}};
}

class Writing {
 public:
  Writing(const ConvertRequest& request, weights::ParameterReader& reader, BackgroundWriter& writer)
      : request_(request), reader_(reader), writer_(writer) {}

  void Codes(const std::string& name) {
    ManifestQuantized described;
    QArray codes;
    if (reader_.IsStoredAsCodes(name)) {
      const weights::StoredCodes& stored = request_.source.codes.at(name);
      codes = stored.read();
      described = DescribeCodes(codes);
      described.sqnr_db = stored.sqnr_db;
      described.largest_error = stored.largest_error;
      UpdateDigest(name, codes.qvalue);
      UpdateDigest(name, codes.scale);
    } else {
      Tensor floats = reader_.ReadStored(name);
      UpdateDigest(name, floats);
      // Once for both uses; the reader goes on to the type that the site wants.
      if (floats.dtype() != DType::kF32) floats = weights::ConvertFloats(floats, DType::kF32, &request_.pool);
      codes = reader_.FreezeStored(name, floats);
      described = DescribeCodes(codes);
      const CodesError error = MeasureCodes(floats, codes, request_.pool, request_.isa);
      described.sqnr_db = error.sqnr_db;
      described.largest_error = error.largest;
    }
    BackgroundWriter::Tensors tensors;
    for (EncodedTensor& part : EncodeCodes(name, codes)) tensors.emplace_back(std::move(part.entry), part.bytes);
    writer_.Add(name, std::move(tensors), described);
  }

  void Floats(const std::string& target, const std::vector<std::string>& names) {
    std::map<std::string, Tensor> values;
    for (const std::string& name : names) {
      const Tensor stored = reader_.ReadStored(name);
      UpdateDigest(name, stored);
      const DType dtype = FloatType(request_, name);
      values[name] = stored.dtype() == dtype ? stored : weights::ConvertFloats(stored, dtype);
    }
    const TreeLayout& tree = request_.tree;
    const std::map<std::string, Tensor> spelled =
        weights::ToMaxTextTree(values, tree.scanned, tree.param_scan_axis, tree.collection);
    const Tensor& value = spelled.at(target);
    writer_.Add(target, {{EntryOf(target, value), value}}, std::nullopt);
  }

  std::string SourceDigest() const { return request_.source.bits.empty() ? source_.Hex() : request_.source.bits; }

 private:
  // Checkpoints have a digest of their own, which their tensors were checked against.
  void UpdateDigest(const std::string& name, const Tensor& tensor) {
    if (!request_.source.bits.empty()) return;
    const Tensor packed = tensor.Contiguous();
    const std::string head = fmt::format("{}\n{}{}\n", name, NameOf(packed.dtype()), packed.shape());
    source_.Update(std::as_bytes(std::span(head)));
    source_.Update({packed.RawData(), static_cast<size_t>(packed.bytes())});
  }

  const ConvertRequest& request_;
  weights::ParameterReader& reader_;
  BackgroundWriter& writer_;
  Digest source_;
};

void FillManifest(const ConvertRequest& request, weights::ParameterReader& reader, Manifest& manifest) {
  const weights::StoredModel& source = request.source;
  manifest.kind = manifest.quantized.empty() ? "params" : "quantized";
  manifest.step = source.step;
  manifest.config = source.config_text;
  models::ModelConfig config = source.config;
  config.scan_layers = request.tree.scanned;
  config.param_scan_axis = request.tree.param_scan_axis;
  manifest.model = weights::ModelToJson(config).dump();
  manifest.source_name = source.name;
  manifest.source_kind = NameOf(source.kind);
  if (reader.recipe() == nullptr) return;
  manifest.recipe = reader.recipe()->text;
  manifest.recipe_name = reader.recipe()->name;
  manifest.recipe_options = reader.recipe()->given;
  manifest.recipe_mixed = reader.recipe()->mixed;
  manifest.plan = quant::PlanTable(reader.plan());
}

// Floats that a recipe quantizes later need all of its state, codes only what serving reads.
NamedTensors StateOf(const ConvertRequest& request, const weights::ParameterReader& reader) {
  NamedTensors state;
  if (reader.recipe() == nullptr) return state;
  const ops::StateStore kept = request.parameters_only ? request.source.state : reader.ServingState();
  for (const auto& [name, value] : kept.values()) state.emplace_back("state/" + name, value);
  return state;
}

}  // namespace

std::vector<PlannedParameter> PlanTarget(const ConvertRequest& request, weights::ParameterReader& reader) {
  std::vector<PlannedParameter> planned;
  for (const auto& [target, names] : PartsOf(request, reader)) {
    int64_t bytes = 0;
    for (const std::string& name : names) {
      const Shape& shape = request.source.floats.tensors.at(name).shape;
      bytes += KeepsCodes(request, reader, name) ? (reader.SiteOf(name)->weight_bits + 7) / 8
                                                 : shape.size() * SizeOf(FloatType(request, name));
    }
    planned.push_back({target, bytes});
  }
  return planned;
}

void WriteOctavo(const ConvertRequest& request, weights::ParameterReader& reader, CheckpointWriter& writer,
                 ConvertSummary& summary) {
  const Parts parts = PartsOf(request, reader);
  BackgroundWriter background(writer);
  Writing writing(request, reader, background);
  Progress progress(request.log, "convert", static_cast<int64_t>(parts.size()), "parameters");
  int64_t done = 0;
  for (const auto& [target, names] : parts) {
    if (KeepsCodes(request, reader, names[0])) {
      writing.Codes(names[0]);
      ++summary.quantized;
    } else {
      writing.Floats(target, names);
    }
    summary.parameters += static_cast<int64_t>(names.size());
    progress.Update(++done);
  }
  background.Finish();
  FillManifest(request, reader, writer.manifest());
  writer.manifest().source_digest = writing.SourceDigest();
  writer.AddState(StateOf(request, reader));
  for (const weights::CarriedFile& file : request.source.carried) {
    writer.AddCarried(file.name, file.read());
    summary.carried.push_back(file.name);
  }
}

}  // namespace octavo::convert
