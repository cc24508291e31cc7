#include "octavo/weights/load_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "octavo/numerics/format.h"
#include "octavo/weights/maxtext_names.h"

namespace octavo::weights {
namespace {

// One parameter.
struct Bytes {
  int64_t loaded = 0, serving = 0, reading = 0;  // reading: for a moment, besides what is kept
};

// N of a weight [K, N], that of all experts together: the axes that products do not sum over.
int64_t ColumnsOf(const quant::SitePlan& site) {
  const Shape& shape = site.weight_is_lhs ? site.lhs : site.rhs;
  const auto& contract = site.weight_is_lhs ? site.dims.lhs_contract : site.dims.rhs_contract;
  int64_t columns = shape.size();
  if (contract.empty() && shape.rank() == 3) return columns / std::max<int64_t>(shape[1], 1);  // ragged
  for (int axis : contract) columns /= std::max<int64_t>(shape[axis], 1);
  return columns;
}

// Panels are packed in columns of 16, two codes of at most four bits to a byte, with their scales, and with a sum of
// each column and tile where the kernels are integer ones.
int64_t PanelBytes(const quant::SitePlan& site, Format format, int64_t scales) {
  const int64_t elements = site.weight_elements, columns = ColumnsOf(site);
  if (columns < 1) return elements;
  const int64_t padded = elements / columns * ((columns + 15) / 16 * 16);
  const bool integer = site.forward.kernel == "i8" || site.forward.kernel == "u4";
  const int64_t sums = integer ? static_cast<int64_t>(sizeof(int32_t)) * std::max(scales, columns) : 0;
  return (Info(format).bits <= 4 ? padded / 2 : padded) + static_cast<int64_t>(sizeof(float)) * scales + sums;
}

Bytes CodesBytes(const ParameterReader& reader, const std::string& name, const quant::SitePlan& site) {
  const SourceTensor& stored = reader.stored().floats.tensors.at(name);
  const int64_t elements = stored.shape.size();
  const quant::OperandPlan& weight = site.weight_is_lhs ? site.forward.lhs : site.forward.rhs;
  Format format = weight.format.value_or(Format::kInt8);
  int64_t scales = weight.scales;
  Bytes bytes;
  if (reader.IsStoredAsCodes(name)) {
    const StoredCodes& codes = reader.stored().codes.at(name);
    format = codes.format;
    if (codes.scale_shape.rank() > 0) scales = codes.scale_shape.size();
    bytes.reading = 2 * elements * SizeOf(Info(format).dtype);  // packed bytes, or the file's axes
  } else {
    bytes.reading = elements * (SizeOf(stored.dtype) + 2 * static_cast<int64_t>(sizeof(float)));
  }
  const int64_t kept = scales * static_cast<int64_t>(sizeof(float));
  bytes.loaded = elements * SizeOf(Info(format).dtype) + kept;
  // Experts as the batch of a product are multiplied as they are.
  const bool packs = site.dims.rhs_batch.empty() && site.dims.lhs_batch.empty();
  bytes.serving = packs ? PanelBytes(site, format, scales) : bytes.loaded;
  return bytes;
}

Bytes FloatBytes(const ParameterReader& reader, const ops::Parameter& parameter,
                 const std::multimap<std::string, const quant::SitePlan*>& treated) {
  const SourceTensor& stored = reader.stored().floats.tensors.at(parameter.name);
  Bytes bytes;
  bytes.loaded = bytes.serving = parameter.tensor().bytes();
  bytes.reading = stored.shape.size() * SizeOf(stored.dtype) * (IsOctavo(reader.stored().kind) ? 1 : 2);
  // Quantized at each use, but kept between them: codes and panels (quant::WeightCache).
  const auto [begin, end] = treated.equal_range(parameter.name);
  for (auto at = begin; at != end; ++at) {
    const quant::SitePlan& site = *at->second;
    const quant::OperandPlan& weight = site.weight_is_lhs ? site.forward.lhs : site.forward.rhs;
    if (!weight.format) continue;
    bytes.serving += site.weight_elements * SizeOf(Info(*weight.format).dtype) +
                     static_cast<int64_t>(sizeof(float)) * weight.scales +
                     PanelBytes(site, *weight.format, weight.scales);
  }
  return bytes;
}

// What is packed together: "decoder/layers_3/".
std::string LayerOf(const std::string& name) {
  const size_t layers = name.find("layers_");
  return layers == std::string::npos ? name : name.substr(0, name.find('/', layers));
}

}  // namespace

LoadMemory LoadMemoryOf(const ParameterReader& reader) {
  std::multimap<std::string, const quant::SitePlan*> treated;
  for (const quant::SitePlan& site : reader.plan().sites) {
    if (!site.weight.empty() && site.treatment) treated.emplace(site.weight, &site);
  }
  LoadMemory memory;
  int64_t reading = 0;
  std::map<std::string, int64_t> layers;  // bytes of panels beside the codes
  std::map<std::string, int64_t> stacks;
  for (const ops::Parameter* parameter : reader.model().parameters()) {
    const quant::SitePlan* site = reader.SiteOf(parameter->name);
    const bool codes = site != nullptr && reader.ReadsCodes(parameter->name);
    const Bytes bytes = codes ? CodesBytes(reader, parameter->name, *site) : FloatBytes(reader, *parameter, treated);
    memory.loaded += bytes.loaded;
    memory.serving += bytes.serving;
    reading = std::max(reading, bytes.reading);
    if (codes) layers[LayerOf(parameter->name)] += bytes.serving;
    const SourceTensor& stored = reader.stored().floats.tensors.at(parameter->name);
    if (!stored.stack.empty() && IsOctavo(reader.stored().kind))
      stacks[stored.stack] += stored.shape.size() * SizeOf(stored.dtype);
  }
  if (reader.ReadsTogether()) reading *= reader.pool().size();
  int64_t whole = 0;  // a stack of layers is read as one and kept until its last layer was taken (LoadModel)
  for (const auto& item : stacks) whole = std::max(whole, item.second);
  int64_t packing = 0;
  for (const auto& item : layers) packing = std::max(packing, item.second);
  memory.peak = std::max(memory.loaded + std::max(reading + whole, packing), memory.serving + packing);
  return memory;
}

}  // namespace octavo::weights
