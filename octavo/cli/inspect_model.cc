#include "octavo/cli/inspect_model.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/gguf.h"
#include "octavo/checkpoint/llama2c.h"
#include "octavo/checkpoint/safetensors.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/models/model.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/stored_model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct RawTensor {
  std::string name, type, file;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// The tensors of the files, whatever they mean. The files stay mapped as long as it lives.
struct RawFiles {
  std::string form;
  std::vector<RawTensor> tensors;
  int64_t files = 0;
  std::vector<std::shared_ptr<const void>> owners;
};

void AddSafetensors(const std::map<std::string, const StoredTensor*, std::less<>>& tensors, RawFiles& raw) {
  for (const auto& item : tensors) {
    const StoredTensor& tensor = *item.second;
    raw.tensors.push_back({tensor.name, std::string(tensor.type), "", tensor.shape, tensor.bytes});
  }
}

void AddFolder(const fs::path& folder, RawFiles& raw) {
  const auto files = std::make_shared<const ShardedSafetensors>(folder);
  raw.form = "safetensors";
  AddSafetensors(files->tensors(), raw);
  raw.owners.push_back(files);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    raw.files += entry.path().extension() == ".safetensors" ? 1 : 0;
  }
}

void AddFile(const fs::path& path, RawFiles& raw) {
  raw.files = 1;
  if (path.extension() == ".safetensors") {
    const auto file = std::make_shared<const SafetensorsFile>(path);
    raw.form = "safetensors";
    for (const StoredTensor& tensor : file->tensors()) {
      raw.tensors.push_back({tensor.name, std::string(tensor.type), "", tensor.shape, tensor.bytes});
    }
    raw.owners.push_back(file);
    return;
  }
  const auto mapped = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> bytes = mapped->bytes();
  raw.owners.push_back(mapped);
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) {
    const GgufContent content = ParseGguf(bytes, path.string());
    raw.form = fmt::format("GGUF version {}", content.version());
    for (const GgufTensor& tensor : content.tensors()) {
      raw.tensors.push_back(
          {std::string(tensor.name), std::string(Info(tensor.type).name), "", tensor.shape, tensor.bytes});
    }
    return;
  }
  if (!LooksLikeLlama2c(bytes)) {
    weights::OpenStored(path);  // says what it is instead
    ThrowFile("{} is no model that Octavo knows", path.string());
  }
  const Llama2cContent content = ParseLlama2c(bytes, path.string());
  raw.form = fmt::format("llama2.c version {}", content.version);
  for (const Llama2cTensor& tensor : content.tensors) {
    raw.tensors.push_back({tensor.name, tensor.group > 0 ? fmt::format("int8 in groups of {}", tensor.group) : "F32",
                           "", tensor.shape, tensor.bytes});
  }
}

RawFiles OpenRaw(const fs::path& given) {
  const fs::path path = weights::ModelFileIn(given);
  RawFiles raw;
  if (fs::is_directory(path)) {
    AddFolder(path, raw);
  } else if (fs::exists(path)) {
    AddFile(path, raw);
  } else {
    ThrowFile("{}: no such file or folder", path.string());
  }
  return raw;
}

struct TypeSum {
  int64_t tensors = 0;
  double bytes = 0;
};

std::string SizeText(double bytes) {
  return bytes < (1 << 30) ? fmt::format("{:.2f} MiB", bytes / (1 << 20))
                           : fmt::format("{:.2f} GiB", bytes / (1 << 30));
}

// What the model is, or why Octavo cannot run it.
struct ModelLine {
  std::string text, why_not;
  Json json;
};

ModelLine DescribeModel(const fs::path& path) {
  try {
    const weights::StoredModel model = weights::OpenStored(path);
    const models::ModelConfig& c = model.config;
    const int64_t parameters = models::ParameterCount(*models::MakeModel(c));
    return {fmt::format("{}   {}   {} layers   width {}   {} heads ({} kv)   vocabulary {}   {:.1f} M parameters",
                        NameOf(model.kind), c.decoder_block, c.num_decoder_layers, c.emb_dim, c.num_query_heads,
                        c.num_kv_heads, c.vocab_size, static_cast<double>(parameters) / 1e6),
            "",
            {{"kind", NameOf(model.kind)},
             {"decoder_block", c.decoder_block},
             {"layers", c.num_decoder_layers},
             {"parameters", parameters},
             {"quantized", model.codes.size()},
             {"notes", model.notes}}};
  } catch (const Error& error) {
    return {"", error.message(), Json()};
  }
}

void PrintTensor(const RawTensor& tensor, bool json) {
  const std::string digest = DigestHex(tensor.bytes);
  if (json) {
    fmt::print("{}\n", Json({{"event", "tensor"},
                             {"name", tensor.name},
                             {"dtype", tensor.type},
                             {"shape", tensor.shape},
                             {"bytes", tensor.bytes.size()},
                             {"digest", digest}})
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("{:<56} {:<6} {:<20} {}\n", tensor.name, tensor.type, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
             digest);
}

// --- scales ---

struct ScaleFigures {
  double least = 0, median = 0, most = 0;
  int64_t zero = 0, not_finite = 0, count = 0;
  std::map<int, int64_t> powers;  // by floor(log2)
};

ScaleFigures FiguresOf(const Tensor& scales) {
  ScaleFigures figures;
  std::vector<float> values = weights::ConvertFloats(scales, DType::kF32).ToVector<float>();
  figures.count = static_cast<int64_t>(values.size());
  std::erase_if(values, [&](float value) {
    if (!std::isfinite(value)) return ++figures.not_finite, true;
    if (value == 0) return ++figures.zero, true;
    ++figures.powers[std::ilogb(value)];
    return false;
  });
  std::sort(values.begin(), values.end());
  if (values.empty()) return figures;
  figures.least = static_cast<double>(values.front());
  figures.most = static_cast<double>(values.back());
  figures.median = static_cast<double>(values[values.size() / 2]);
  return figures;
}

// Codes at the ends of the range.
double ClippedShare(const QArray& array) {
  const FormatInfo& info = Info(array.format);
  if (info.kind != FormatKind::kInteger || array.qvalue.dtype() != DType::kI8) return 0;
  int64_t clipped = 0;
  for (const int8_t code : array.qvalue.ToVector<int8_t>()) {
    clipped += code <= info.qmin || code >= info.qmax ? 1 : 0;
  }
  return static_cast<double>(clipped) / static_cast<double>(std::max<int64_t>(1, array.qvalue.size()));
}

std::string Histogram(const ScaleFigures& figures) {
  if (figures.powers.empty()) return "";
  int64_t most = 0;
  for (const auto& item : figures.powers) most = std::max(most, item.second);
  constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int first = figures.powers.begin()->first, last = figures.powers.rbegin()->first;
  std::string bars;
  for (int power = first; power <= last && power < first + 64; ++power) {
    const auto found = figures.powers.find(power);
    const int64_t count = found == figures.powers.end() ? 0 : found->second;
    bars += kBars[count == 0 ? 0 : 1 + (count * 7) / most];
  }
  return fmt::format("2^{} |{}| 2^{}", first, bars, last + 1);
}

void PrintQuant(const std::string& name, const QArray& array, bool json) {
  const ScaleFigures figures = FiguresOf(array.scale);
  const std::vector<int64_t> tile = TileShape(array);
  const double clipped = ClippedShare(array);
  if (json) {
    Json powers = Json::object();
    for (const auto& [power, count] : figures.powers) powers[std::to_string(power)] = count;
    fmt::print("{}\n", Json({{"event", "quantized"},
                             {"name", name},
                             {"format", Info(array.format).name},
                             {"shape", std::vector<int64_t>(array.shape().begin(), array.shape().end())},
                             {"tile", tile},
                             {"scales", figures.count},
                             {"scale_dtype", NameOf(array.scale.dtype())},
                             {"zero_point", array.zero_point.has_value()},
                             {"scale_least", figures.least},
                             {"scale_median", figures.median},
                             {"scale_most", figures.most},
                             {"scale_zero", figures.zero},
                             {"scale_not_finite", figures.not_finite},
                             {"scale_log2_histogram", powers},
                             {"at_the_ends", clipped}})
                           .dump());
    return;
  }
  fmt::print("{:<48} {:<6} {}   tile [{}]   {} scales {} {:.3g} … {:.3g} … {:.3g}   {}   {:.2f} % at the ends{}{}\n",
             name, Info(array.format).name, array.shape(), fmt::join(tile, ", "), figures.count,
             NameOf(array.scale.dtype()), figures.least, figures.median, figures.most, Histogram(figures),
             100 * clipped, array.zero_point ? "   zero points" : "",
             figures.not_finite > 0 ? fmt::format("   {} scales not finite", figures.not_finite) : "");
}

}  // namespace

int InspectQuant(const Args& args) {
  const weights::StoredModel model = weights::OpenStored(args.positionals()[0]);
  const bool json = args.Switch("json");
  int64_t elements = 0;
  for (const auto& [name, codes] : model.codes) {
    PrintQuant(name, codes.read(), json);
    elements += codes.shape.size();
  }
  int64_t all = 0;
  for (const auto& item : model.floats.tensors) all += item.second.shape.size();
  if (json) {
    fmt::print("{}\n", Json({{"event", "quant"},
                             {"recipe", model.recipe.name},
                             {"quantized", model.codes.size()},
                             {"parameters", model.floats.tensors.size()},
                             {"quantized_elements", elements},
                             {"elements", all}})
                           .dump());
    return 0;
  }
  fmt::print("quantized   {} of {} parameters   {:.1f} % of the elements   recipe {}\n", model.codes.size(),
             model.floats.tensors.size(),
             100 * static_cast<double>(elements) / static_cast<double>(std::max<int64_t>(1, all)),
             model.recipe.name.empty() ? "none" : model.recipe.name);
  for (const auto& [name, reason] : model.decoded) fmt::print("as floats   {}: {}\n", name, reason);
  return 0;
}

int InspectModel(const Args& args) {
  const fs::path path = args.positionals()[0];
  const RawFiles raw = OpenRaw(path);
  const bool json = args.Switch("json"), verify = args.Switch("verify");
  const ModelLine model = DescribeModel(path);
  std::map<std::string, TypeSum> types;
  double bytes = 0;
  Digest all;
  for (const RawTensor& tensor : raw.tensors) {
    if (args.Switch("tensors")) PrintTensor(tensor, json);
    ++types[tensor.type].tensors;
    types[tensor.type].bytes += static_cast<double>(tensor.bytes.size());
    bytes += static_cast<double>(tensor.bytes.size());
    if (!verify) continue;
    const std::string line = fmt::format("{}\n{}\n{}\n{}\n", tensor.name, tensor.type, fmt::join(tensor.shape, ","),
                                         DigestHex(tensor.bytes));
    all.Update(std::as_bytes(std::span(line)));
  }
  if (json) {
    Json by_type = Json::object();
    for (const auto& [type, sum] : types) by_type[type] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
    Json line = {{"event", "model"},   {"path", path.string()},         {"form", raw.form},
                 {"files", raw.files}, {"tensors", raw.tensors.size()}, {"bytes", bytes},
                 {"types", by_type},   {"model", model.json},           {"why_not", model.why_not},
                 {"verified", verify}};
    if (verify) line["digest"] = all.Hex();
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  fmt::print("files       {}   {}   {} file{}\n", path.string(), raw.form, raw.files, raw.files == 1 ? "" : "s");
  if (model.why_not.empty()) {
    fmt::print("model       {}\n", model.text);
  } else {
    fmt::print("model       Octavo cannot run it: {}\n", model.why_not);
  }
  for (const auto& [type, sum] : types) {
    fmt::print("{:<11} {} tensors   {}\n", type, sum.tensors, SizeText(sum.bytes));
  }
  fmt::print("tensors     {}   {}\n", raw.tensors.size(), SizeText(bytes));
  if (verify) {
    fmt::print("verify      {} tensors read, no holes, no duplicates; the format has no checksums\n",
               raw.tensors.size());
    fmt::print("bits        {}   of names, types, shapes and data\n", all.Hex());
  }
  return 0;
}

}  // namespace octavo
