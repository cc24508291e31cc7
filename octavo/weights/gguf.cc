#include "octavo/weights/gguf.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/check.h"
#include "octavo/weights/transpose.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

// One tensor of a file as a lattice, where our formats have it.
std::function<Lattice()> LatticeReader(const std::shared_ptr<const GgufFile>& file, const GgufTensor& tensor) {
  if ((tensor.type != GgmlType::kQ8_0 && tensor.type != GgmlType::kQ4_0) || tensor.shape.size() != 2) return nullptr;
  return [file, tensor] {
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const bool eight = tensor.type == GgmlType::kQ8_0;
    const int bytes = Info(tensor.type).bytes;
    Lattice lattice;
    lattice.format = eight ? Format::kInt8 : Format::kInt4;
    lattice.codes = Tensor::Empty(Shape{rows, columns}, DType::kI8);
    lattice.scale = Tensor::Empty(Shape{rows, columns / 32}, DType::kF16);
    lattice.tile_columns = 32;
    lattice.shape = {rows, columns};
    auto* code = lattice.codes.MutableData<int8_t>();
    auto* scale = lattice.scale.MutableData<uint16_t>();
    const auto* block = reinterpret_cast<const uint8_t*>(tensor.bytes.data());
    for (int64_t i = 0; i < rows * columns / 32; ++i, block += bytes, code += 32) {
      std::memcpy(scale++, block, 2);
      if (eight) std::memcpy(code, block + 2, 32);
      for (int j = 0; !eight && j < 16; ++j) {
        code[j] = static_cast<int8_t>((block[2 + j] & 15) - 8);
        code[j + 16] = static_cast<int8_t>((block[2 + j] >> 4) - 8);
      }
    }
    return lattice;
  };
}

Tensor Regroup(const Tensor& rows, int64_t heads, bool to_pairs) {
  const int64_t pairs = rows.dim(0) / heads / 2, inner = rows.size() / rows.dim(0);
  const Tensor split = to_pairs ? rows.Reshape({heads, 2, pairs, inner}) : rows.Reshape({heads, pairs, 2, inner});
  return split.SwapAxes(1, 2).Contiguous().Reshape(rows.shape());
}

// How the rows of a tensor lie, against plain folders.
struct Layout {
  int64_t heads = 0;    // whose rows are to be turned to halves; 0: none
  bool turned = false;  // it is [out, in], in plain folders [in, out]
};

Layout LayoutOf(std::string_view hf_name, const HfConfig& hf) {
  Layout layout;
  layout.turned = hf.model_type == "gpt2" && hf_name.find(".c_") != std::string_view::npos;
  const GgufArchitecture* architecture = FindGgufArchitecture(hf.model_type);
  OCTAVO_CHECK(architecture != nullptr);
  if (!architecture->pairs) return layout;
  if (hf_name.find(".self_attn.q_proj.") != std::string_view::npos) layout.heads = hf.config.num_query_heads;
  if (hf_name.find(".self_attn.k_proj.") != std::string_view::npos) layout.heads = hf.config.num_kv_heads;
  return layout;
}

Tensor ReadValues(const GgufTensor& tensor) {
  Tensor values = Tensor::Empty(Shape(tensor.shape), DType::kF32);
  DecodeBlocks(tensor.type, tensor.bytes, values.MutableValues<float>());
  return values;
}

LogicalTensor MakeLogical(const std::shared_ptr<const GgufFile>& file, const GgufTensor& tensor, Layout layout) {
  LogicalTensor logical;
  logical.shape = Shape(tensor.shape);
  // What does not fit is found by its shape, before anything is read.
  if (tensor.shape.empty() || layout.heads < 1 || tensor.shape[0] % (2 * layout.heads) != 0) layout.heads = 0;
  if (tensor.shape.size() != 2) layout.turned = false;
  if (layout.turned) logical.shape = Shape{tensor.shape[1], tensor.shape[0]};
  logical.read = [file, tensor, layout] {
    const Tensor values = ReadValues(tensor);
    if (layout.turned) return Transposed(values);
    return layout.heads > 0 ? RowsToHalves(values, layout.heads) : values;
  };
  const std::function<Lattice()> lattice = LatticeReader(file, tensor);
  if (!lattice) return logical;
  logical.read_lattice = [lattice, layout] {
    Lattice one = lattice();
    if (layout.heads > 0) {
      one.codes = RowsToHalves(one.codes, layout.heads);
      one.scale = RowsToHalves(one.scale, layout.heads);
    }
    if (layout.turned) {
      one.transposed = true;
      one.shape = {one.shape[1], one.shape[0]};
    }
    return one;
  };
  return logical;
}

// All experts of a layer in one tensor, [experts, rows, columns]: the i-th of them.
GgufTensor ExpertOf(const GgufTensor& all, int64_t experts, int64_t i) {
  GgufTensor one = all;
  one.shape = {all.shape[1], all.shape[2]};
  one.count = all.count / experts;
  const size_t bytes = all.bytes.size() / static_cast<size_t>(experts);
  one.bytes = all.bytes.subspan(static_cast<size_t>(i) * bytes, bytes);
  return one;
}

// Newer files of deepseek keep the keys' half of kv_b turned around, [heads, rank, nope], and the values' half,
// [heads, v, rank], each by itself. Plain: [heads * (nope + v), rank].
LogicalTensor JoinLatent(const std::shared_ptr<const GgufFile>& file, const GgufTensor& k, const GgufTensor& v) {
  const int64_t heads = k.shape[0], rank = k.shape[1], nope = k.shape[2], width = v.shape[1];
  LogicalTensor logical;
  logical.shape = Shape{heads * (nope + width), rank};
  logical.read = [file, k, v, heads, rank, nope, width] {
    const Tensor keys = ReadValues(k).SwapAxes(1, 2).Contiguous(), values = ReadValues(v);
    Tensor both = Tensor::Empty(Shape{heads * (nope + width), rank}, DType::kF32);
    float* out = both.MutableData<float>();
    for (int64_t head = 0; head < heads; ++head) {
      out = std::copy_n(keys.Data<float>() + head * nope * rank, nope * rank, out);
      out = std::copy_n(values.Data<float>() + head * width * rank, width * rank, out);
    }
    return both;
  };
  return logical;
}

bool FitTogether(const GgufTensor* k, const GgufTensor* v) {
  return k != nullptr && v != nullptr && k->shape.size() == 3 && v->shape.size() == 3 && k->shape[0] == v->shape[0] &&
         k->shape[1] == v->shape[2];
}

class Opening {
 public:
  Opening(std::shared_ptr<const GgufFile> file, HfModel& model) : file_(std::move(file)), model_(model) {}

  void Add(const GgufTensor& tensor) {
    if (tensor.name == "rope_freqs.weight") return;  // part of the configuration
    const GgufLayerName layer = SplitGgufName(tensor.name);
    if (layer.layer && (layer.rest == "attn_k_b.weight" || layer.rest == "attn_v_b.weight")) {
      const GgufContent& content = file_->content();
      const GgufTensor* k = content.FindTensor(fmt::format("blk.{}.attn_k_b.weight", *layer.layer));
      const GgufTensor* v = content.FindTensor(fmt::format("blk.{}.attn_v_b.weight", *layer.layer));
      if (FitTogether(k, v)) {
        Put(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", *layer.layer), JoinLatent(file_, *k, *v));
        return;
      }
    }
    const int64_t experts = model_.config.config.num_experts;
    const std::string& type = model_.config.model_type;
    const bool stacked = layer.rest.find("_exps.") != std::string_view::npos;
    const bool fits = !stacked || (tensor.shape.size() == 3 && tensor.shape[0] == experts);
    const std::vector<std::string> names = fits ? HfNamesOf(tensor.name, type, experts) : std::vector<std::string>();
    if (names.empty()) {
      Put(std::string(tensor.name), MakeLogical(file_, tensor, {}));  // listed as superfluous
      return;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const GgufTensor one = stacked ? ExpertOf(tensor, experts, static_cast<int64_t>(i)) : tensor;
      Put(names[i], MakeLogical(file_, one, LayoutOf(names[i], model_.config)));
    }
  }

 private:
  void Put(std::string name, LogicalTensor tensor) {
    model_.tensors.tensors.insert_or_assign(std::move(name), std::move(tensor));
  }

  std::shared_ptr<const GgufFile> file_;
  HfModel& model_;
};

}  // namespace

Tensor RowsToHalves(const Tensor& rows, int64_t heads) { return Regroup(rows, heads, false); }
Tensor RowsToPairs(const Tensor& rows, int64_t heads) { return Regroup(rows, heads, true); }

HfModel OpenGguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const GgufFile>(path);
  HfModel model;
  model.config = GgufConfig(file->content());
  model.tensors.where = path.string();
  model.tensors.method = "gguf";
  Opening opening(file, model);
  for (const GgufTensor& tensor : file->content().tensors()) opening.Add(tensor);
  MatchTensors(model, path.string());
  return model;
}

}  // namespace octavo::weights
