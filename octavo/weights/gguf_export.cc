#include "octavo/weights/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/numerics/half.h"
#include "octavo/quant/quantize.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/gguf.h"
#include "octavo/weights/gguf_export_keys.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/hf_names.h"
#include "octavo/weights/transpose.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;
using Value = std::variant<Tensor, QArray>;

constexpr int64_t kBlock = 32;

// One tensor of the file: rows of values, or rows of codes with a scale for each element.
struct Part {
  std::string name;
  Tensor values;         // f32, bf16, f16
  Tensor codes, scales;  // i8 and f32, of the same shape; undefined without codes
  Format format = Format::kInt8;
  bool decoded = false;  // it came as codes that no block holds
};

class Exporter {
 public:
  Exporter(const ModelConfig& config, const std::function<Value(const std::string&)>& read,
           const GgufExportOptions& options, GgufWriter& writer)
      : c_(config),
        read_(read),
        options_(options),
        writer_(writer),
        model_type_(HfModelTypeOf(config)),
        architecture_(GgufArchitectureFor(config, model_type_)),
        pieces_(HfPieces(model_type_, config)) {}

  GgufExported Run() {
    std::vector<GgmlType> types;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (options_.progress) options_.progress(static_cast<int64_t>(i), static_cast<int64_t>(2 * pieces_.size()));
      const Part part = Read(pieces_[i]);
      types.push_back(TypeOf(part));
      const Shape& shape = part.codes.defined() ? part.codes.shape() : part.values.shape();
      tensors_.push_back({part.name, types.back(), {shape.begin(), shape.end()}});
    }
    WriteGgufKeys(c_, model_type_, {options_.name, options_.dtype, types}, writer_);
    if (options_.more_keys) options_.more_keys(writer_);
    if (c_.rope_type == "llama3.1") writer_.Tensor("rope_freqs.weight", GgmlType::kF32, std::vector{c_.head_dim / 2});
    for (const auto& tensor : tensors_) writer_.Tensor(tensor.name, tensor.type, tensor.shape);
    writer_.WriteHeader();
    if (c_.rope_type == "llama3.1") {
      const std::vector<float> factors = Llama3RopeFactors(c_);
      writer_.Write(std::as_bytes(std::span(factors)));
    }
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (options_.progress) {
        options_.progress(static_cast<int64_t>(pieces_.size() + i), static_cast<int64_t>(2 * pieces_.size()));
      }
      WritePart(Read(pieces_[i]), types[i]);
    }
    writer_.Finish();
    result_.tensors = static_cast<int64_t>(pieces_.size());
    AddNotes();
    return std::move(result_);
  }

 private:
  struct Row {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
  };

  // What the scores' scale asks of the queries.
  double FactorOf(const HfPiece& piece) const {
    return piece.ours.find("/query/") == std::string::npos ? 1 : HfQueryFactor(c_);
  }

  int64_t HeadsOf(const HfPiece& piece) const {
    if (!architecture_.pairs) return 0;
    if (piece.ours.find("/self_attention/query/") != std::string::npos) return c_.num_query_heads;
    return piece.ours.find("/self_attention/key/") != std::string::npos ? c_.num_kv_heads : 0;
  }

  Part Read(const HfPiece& piece) const {
    Part part;
    part.name = GgufNameOf(piece.theirs.at(0), model_type_);
    OCTAVO_CHECK(!part.name.empty());
    const Value value = read_(piece.ours);
    const auto factor = static_cast<float>(FactorOf(piece));
    const int64_t heads = HeadsOf(piece);
    const auto out = [&](const Tensor& ours) {
      const Tensor theirs = Rows(piece, ExportPiece(piece, ours));
      return heads > 0 ? RowsToPairs(theirs, heads) : theirs;
    };
    const auto times = [&](const Tensor& tensor) {
      if (factor == 1) return tensor;
      std::vector<float> values = ConvertFloats(tensor, DType::kF32).ToVector<float>();
      for (float& one : values) one *= factor;
      return Tensor::FromValues(tensor.shape(), DType::kF32, values);
    };
    if (const Tensor* plain = std::get_if<Tensor>(&value)) {
      CheckShape(piece, plain->shape());
      part.values = out(times(*plain));
      return part;
    }
    const QArray& array = std::get<QArray>(value);
    CheckShape(piece, array.shape());
    part.format = array.format;
    const bool small = array.format == Format::kInt8 || array.format == Format::kInt4;
    if (small && !array.zero_point && RowLength(piece) % kBlock == 0) {
      part.codes = out(array.qvalue);
      part.scales = out(times(ConvertFloats(array.scale, DType::kF32).RepeatTo(array.shape())));
      if (HaveBlocks(part)) return part;
      part.codes = part.scales = Tensor();
    }
    part.decoded = true;
    part.values = out(times(quant::Dequantize(array)));
    return part;
  }

  // [out, in] of a projection, also where plain folders keep it the other way round (gpt2); [experts, out, in].
  static Tensor Rows(const HfPiece& piece, const std::vector<Tensor>& theirs) {
    if (!piece.stacked) {
      const bool turned = !piece.transposed && piece.in.rank() > 0;
      return turned ? Transposed(theirs[0]) : theirs[0].Contiguous();
    }
    const Shape one = piece.TheirShape();
    Tensor all = Tensor::Empty(Shape{static_cast<int64_t>(theirs.size()), one[0], one[1]}, theirs[0].dtype());
    std::byte* to = all.MutableRawData();
    for (const Tensor& expert : theirs) {
      const Tensor packed = expert.Contiguous();
      std::memcpy(to, packed.RawData(), static_cast<size_t>(packed.bytes()));
      to += packed.bytes();
    }
    return all;
  }

  // Of rows that blocks may be made of; 1: there are none.
  static int64_t RowLength(const HfPiece& piece) { return piece.in.rank() == 0 ? 1 : piece.in.size(); }

  void CheckShape(const HfPiece& piece, const Shape& shape) const {
    if (shape != piece.OurShape()) {
      ThrowUsage("export: {} is {}, expected {}", piece.ours, shape, piece.OurShape());
    }
  }

  // One scale for each 32 neighbours.
  static bool HaveBlocks(const Part& part) {
    const std::span<const float> scales = part.scales.Values<float>();
    for (size_t i = 0; i < scales.size(); ++i) {
      if (std::memcmp(&scales[i], &scales[i - i % kBlock], sizeof(float)) != 0) return false;
    }
    return true;
  }

  GgmlType TypeOf(const Part& part) {
    if (part.codes.defined()) {
      ++result_.quantized;
      NoteScales(part);
      return part.format == Format::kInt8 ? GgmlType::kQ8_0 : GgmlType::kQ4_0;
    }
    decoded_ += part.decoded ? 1 : 0;
    if (part.values.rank() < 2) return GgmlType::kF32;
    switch (options_.dtype) {
      case DType::kF32:
        return GgmlType::kF32;
      case DType::kBF16:
        return GgmlType::kBF16;
      case DType::kF16:
        return GgmlType::kF16;
      default:
        ThrowUsage("GGUF: floats of type {}", NameOf(options_.dtype));
    }
  }

  void NoteScales(const Part& part) {
    const std::span<const float> scales = part.scales.Values<float>();
    bool rounded = false;
    for (size_t i = 0; i < scales.size(); i += kBlock) {
      const float stored = F16ToF32(F32ToF16(scales[i]));
      if (stored == scales[i]) continue;
      rounded = true;
      largest_ = std::max(largest_,
                          std::abs(static_cast<double>(stored) - scales[i]) / std::abs(static_cast<double>(scales[i])));
    }
    rounded_ += rounded ? 1 : 0;
  }

  void WritePart(const Part& part, GgmlType type) {
    if (part.codes.defined()) {
      WriteBlocks(part);
      return;
    }
    const DType dtype = type == GgmlType::kBF16 ? DType::kBF16 : type == GgmlType::kF16 ? DType::kF16 : DType::kF32;
    const Tensor stored = ConvertFloats(part.values, dtype).Contiguous();
    writer_.Write({stored.RawData(), static_cast<size_t>(stored.bytes())});
  }

  void WriteBlocks(const Part& part) {
    const bool eight = part.format == Format::kInt8;
    const std::span<const float> scales = part.scales.Values<float>();
    const int8_t* code = part.codes.Data<int8_t>();
    std::string bytes;
    for (size_t i = 0; i < scales.size(); i += kBlock, code += kBlock) {
      const uint16_t scale = F32ToF16(scales[i]);
      bytes.append(reinterpret_cast<const char*>(&scale), 2);
      if (eight) {
        bytes.append(reinterpret_cast<const char*>(code), kBlock);
        continue;
      }
      for (int j = 0; j < 16; ++j) {
        bytes += static_cast<char>(((code[j] + 8) & 15) | ((code[j + 16] + 8) & 15) << 4);
      }
    }
    writer_.Write(std::as_bytes(std::span(bytes)));
  }

  void AddNotes() {
    if (decoded_ > 0) {
      result_.notes.push_back(
          fmt::format("{} tensors: codes that Q8_0 and Q4_0 cannot hold became {}", decoded_, NameOf(options_.dtype)));
    }
    if (rounded_ > 0) {
      result_.notes.push_back(fmt::format(
          "{} tensors: scales rounded to f16, by at most {:.1e} of a value; the codes are kept", rounded_, largest_));
    }
  }

  const ModelConfig& c_;
  const std::function<Value(const std::string&)>& read_;
  const GgufExportOptions& options_;
  GgufWriter& writer_;
  std::string model_type_;
  const GgufArchitecture& architecture_;
  std::vector<HfPiece> pieces_;
  std::vector<Row> tensors_;
  GgufExported result_;
  int64_t rounded_ = 0, decoded_ = 0;
  double largest_ = 0;
};

}  // namespace

GgufExported ExportGguf(const ModelConfig& config, const std::function<Value(const std::string&)>& read,
                        const GgufExportOptions& options, GgufWriter& writer) {
  return Exporter(config, read, options, writer).Run();
}

}  // namespace octavo::weights
