#include "octavo/weights/hf_export.h"

#include <cmath>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/checkpoint/safetensors_writer.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/hf_config.h"
#include "octavo/weights/hf_names.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::ordered_json;
using models::ModelConfig;

const char* SafetensorsNameOf(DType dtype) {
  if (dtype == DType::kF32) return "F32";
  if (dtype == DType::kBF16) return "BF16";
  if (dtype == DType::kF16) return "F16";
  ThrowUsage("model folders hold f32, bf16 or f16, not {}", NameOf(dtype));
}

Tensor Multiplied(const Tensor& tensor, double factor) {
  if (factor == 1) return tensor;
  std::vector<float> values = ConvertFloats(tensor, DType::kF32).ToVector<float>();
  for (float& value : values) value = static_cast<float>(value * factor);
  return Tensor::FromValues(tensor.shape(), DType::kF32, values);
}

struct Shard {
  std::string name;
  std::vector<const HfPiece*> pieces;
  int64_t bytes = 0;
};

std::vector<Shard> Divide(const std::vector<HfPiece>& pieces, const HfExportOptions& options) {
  std::vector<Shard> shards(1);
  for (const HfPiece& piece : pieces) {
    const int64_t bytes = piece.OurShape().size() * SizeOf(options.dtype);
    if (!shards.back().pieces.empty() && shards.back().bytes + bytes > options.shard_bytes) shards.emplace_back();
    shards.back().pieces.push_back(&piece);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

void WriteShard(const Shard& shard, const HfExportOptions& options, FolderPublisher& folder,
                const std::function<Tensor(const HfPiece&)>& read) {
  std::vector<TensorEntry> entries;
  for (const HfPiece* piece : shard.pieces) {
    const Shape shape = piece->TheirShape();
    for (const std::string& name : piece->theirs) {
      entries.push_back({name, SafetensorsNameOf(options.dtype), {shape.begin(), shape.end()}});
    }
  }
  SafetensorsWriter writer(folder.Create(shard.name), std::move(entries), {{"format", "pt"}});
  for (const HfPiece* piece : shard.pieces) {
    for (const Tensor& theirs : ExportPiece(*piece, read(*piece))) {
      const Tensor stored =
          theirs.dtype() == options.dtype ? theirs.Contiguous() : ConvertFloats(theirs, options.dtype).Contiguous();
      writer.Write({stored.RawData(), static_cast<size_t>(stored.bytes())});
    }
  }
  writer.Close();
}

void WriteIndex(const std::vector<Shard>& shards, FolderPublisher& folder) {
  if (shards.size() == 1) return;
  Json map = Json::object();
  int64_t total = 0;
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const HfPiece* piece : shard.pieces) {
      for (const std::string& name : piece->theirs) map[name] = shard.name;
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  folder.WriteFile("model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

double HfQueryFactor(const ModelConfig& config) {
  const bool scales_itself =
      config.decoder_block == "gpt3" || config.decoder_block == "deepseek" || config.decoder_block.starts_with("qwen3");
  if (scales_itself) return 1;
  const double scale = config.query_pre_attn_scalar != 0 ? config.query_pre_attn_scalar : 1;
  return scale * std::sqrt(static_cast<double>(config.head_dim));
}

void ExportHf(const ModelConfig& config, const std::function<Tensor(const std::string&)>& read,
              const HfExportOptions& options, FolderPublisher& folder) {
  const std::vector<HfPiece> pieces = HfPieces(HfModelTypeOf(config), config);
  const double factor = HfQueryFactor(config);
  const auto read_piece = [&](const HfPiece& piece) {
    const Tensor ours = read(piece.ours);
    if (ours.shape() != piece.OurShape()) {
      ThrowUsage("export: {} is {}, expected {}", piece.ours, ours.shape(), piece.OurShape());
    }
    const bool query = piece.ours.find("/query/") != std::string::npos;
    return query ? Multiplied(ours, factor) : ours;
  };
  const std::vector<Shard> shards = Divide(pieces, options);
  for (const Shard& shard : shards) WriteShard(shard, options, folder, read_piece);
  WriteIndex(shards, folder);
  folder.WriteFile("config.json", WriteHfConfig(config, options.dtype).dump(2) + "\n");
}

}  // namespace octavo::weights
