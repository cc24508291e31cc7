#include "octavo/weights/hf.h"

#include <algorithm>
#include <set>

#include "octavo/base/error.h"
#include "octavo/weights/fault_list.h"

namespace octavo::weights {
namespace {

// Old files of gpt2 have no prefix.
std::string Gpt2Prefix(const LogicalTensors& tensors) {
  return tensors.tensors.contains("wte.weight") ? "" : "transformer.";
}

// "model.layers.61.…" of a model of 61 layers: a prediction layer.
bool IsSkippedLayer(const std::string& name, const HfConfig& config) {
  for (int64_t i = 0; i < config.skipped_layers && i < 64; ++i) {
    if (name.starts_with(fmt::format("model.layers.{}.", config.config.num_decoder_layers + i))) return true;
  }
  return false;
}

class Matcher {
 public:
  Matcher(HfModel& model, std::string where) : model_(model), where_(std::move(where)) {}

  void Match(const HfPiece& piece) {
    std::vector<const LogicalTensor*> parts;
    for (const std::string& name : piece.theirs) {
      const auto found = model_.tensors.tensors.find(name);
      if (found == model_.tensors.tensors.end()) {
        faults_[name] = "missing";
        continue;
      }
      used_.insert(name);
      Check(name, found->second, piece.TheirShape());
      parts.push_back(&found->second);
    }
    if (parts.size() != piece.theirs.size()) return;
    SourceTensor tensor;
    tensor.shape = piece.OurShape();
    tensor.dtype = piece.less_one ? DType::kF32 : parts[0]->dtype;
    for (const LogicalTensor* part : parts) {
      if (part->dtype != parts[0]->dtype) faults_[piece.theirs[0]] = "its experts are of different types";
    }
    std::vector<std::function<Tensor()>> readers;
    for (const LogicalTensor* part : parts) readers.push_back(part->read);
    tensor.read = [piece, readers = std::move(readers)] {
      std::vector<Tensor> theirs;
      for (const auto& read : readers) theirs.push_back(read());
      return ImportPiece(piece, theirs);
    };
    model_.source.tensors.emplace(piece.ours, std::move(tensor));
  }

  void CheckSuperfluous() {
    const bool tied = model_.config.config.logits_via_embedding;
    for (const auto& [name, tensor] : model_.tensors.tensors) {
      if (used_.contains(name)) continue;
      if (IsHfBuffer(name)) continue;
      if (IsSkippedLayer(name, model_.config)) {
        ++skipped_;
      } else if (tied && name == "lm_head.weight") {
        model_.notes.push_back("lm_head.weight is left out: the head is tied to the embedding");
      } else {
        faults_[name] =
            fmt::format("superfluous: the model has no such tensor ({}{})", NameOf(tensor.dtype), tensor.shape);
      }
    }
    if (skipped_ > 0) {
      model_.notes.push_back(
          fmt::format("{} tensors of the prediction layers after the last one are left out", skipped_));
    }
  }

  void ThrowFaults() const {
    if (faults_.empty()) return;
    FaultList list;
    for (const auto& [name, fault] : faults_) list.Add(fmt::format("{}: {}", name, fault));
    throw Error(
        ErrorCode::kFile,
        fmt::format("{}: {} of its tensors do not fit its configuration; nothing was loaded", where_, faults_.size()),
        list.Text() + "the files belong to another model, or the download is not complete");
  }

 private:
  void Check(const std::string& name, const LogicalTensor& tensor, const Shape& wanted) {
    if (tensor.shape != wanted) {
      faults_[name] = fmt::format("expected shape {}, found {}", wanted, tensor.shape);
    } else if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
      faults_[name] = fmt::format("expected f32, bf16 or f16, found {}", NameOf(tensor.dtype));
    }
  }

  HfModel& model_;
  std::string where_;
  std::set<std::string> used_;
  std::map<std::string, std::string> faults_;
  int64_t skipped_ = 0;
};

}  // namespace

void MatchTensors(HfModel& model, const std::string& where) {
  model.pieces = HfPieces(model.config.model_type, model.config.config, Gpt2Prefix(model.tensors));
  model.source.where = where;
  model.notes = model.config.notes;
  model.notes.insert(model.notes.end(), model.tensors.notes.begin(), model.tensors.notes.end());
  Matcher matcher(model, where);
  for (const HfPiece& piece : model.pieces) matcher.Match(piece);
  matcher.CheckSuperfluous();
  matcher.ThrowFaults();
}

HfModel OpenHf(const std::filesystem::path& folder, const std::string& config_name) {
  HfModel model;
  model.config = ReadHfConfig(folder / config_name);
  model.tensors = OpenLogical(std::make_shared<const ShardedSafetensors>(folder), model.config.quantization);
  MatchTensors(model, folder.string());
  return model;
}

std::optional<QArray> HfModel::Codes(const std::string& ours, std::string* reason) const {
  const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const HfPiece& one) { return one.ours == ours; });
  if (piece == pieces.end()) ThrowUsage("{}: no parameter '{}'", source.where, ours);
  std::vector<QArray> parts;
  for (const std::string& name : piece->theirs) {
    const LogicalTensor& tensor = tensors.tensors.at(name);
    if (!tensor.read_lattice) return std::nullopt;
    std::optional<QArray> codes = ToQArray(tensor.read_lattice(), reason);
    if (!codes) return std::nullopt;
    parts.push_back(std::move(*codes));
  }
  return ImportPiece(*piece, parts, reason);
}

}  // namespace octavo::weights
