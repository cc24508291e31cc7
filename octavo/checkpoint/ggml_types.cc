#include "octavo/checkpoint/ggml_types.h"

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/checkpoint/ggml_blocks.h"

namespace octavo {
namespace {

using enum GgmlType;

constexpr GgmlTypeInfo kTypes[] = {
    {kF32, "F32", 1, 4, ggml::DecodeF32, ggml::QuantizeF32},
    {kF16, "F16", 1, 2, ggml::DecodeF16, ggml::QuantizeF16},
    {kQ4_0, "Q4_0", 32, 18, ggml::DecodeQ4_0, ggml::QuantizeQ4_0},
    {kQ4_1, "Q4_1", 32, 20, ggml::DecodeQ4_1, ggml::QuantizeQ4_1},
    {kQ5_0, "Q5_0", 32, 22, ggml::DecodeQ5_0, ggml::QuantizeQ5_0},
    {kQ5_1, "Q5_1", 32, 24, ggml::DecodeQ5_1, ggml::QuantizeQ5_1},
    {kQ8_0, "Q8_0", 32, 34, ggml::DecodeQ8_0, ggml::QuantizeQ8_0},
    {kQ8_1, "Q8_1", 32, 40, nullptr, nullptr},
    {kQ2_K, "Q2_K", 256, 84, ggml::DecodeQ2_K, nullptr},
    {kQ3_K, "Q3_K", 256, 110, ggml::DecodeQ3_K, nullptr},
    {kQ4_K, "Q4_K", 256, 144, ggml::DecodeQ4_K, nullptr},
    {kQ5_K, "Q5_K", 256, 176, ggml::DecodeQ5_K, nullptr},
    {kQ6_K, "Q6_K", 256, 210, ggml::DecodeQ6_K, nullptr},
    {kQ8_K, "Q8_K", 256, 292, nullptr, nullptr},
    {kIQ2_XXS, "IQ2_XXS", 256, 66, nullptr, nullptr},
    {kIQ2_XS, "IQ2_XS", 256, 74, nullptr, nullptr},
    {kIQ3_XXS, "IQ3_XXS", 256, 98, nullptr, nullptr},
    {kIQ1_S, "IQ1_S", 256, 50, nullptr, nullptr},
    {kIQ4_NL, "IQ4_NL", 32, 18, ggml::DecodeIQ4_NL, nullptr},
    {kIQ3_S, "IQ3_S", 256, 110, nullptr, nullptr},
    {kIQ2_S, "IQ2_S", 256, 82, nullptr, nullptr},
    {kIQ4_XS, "IQ4_XS", 256, 136, ggml::DecodeIQ4_XS, nullptr},
    {kI8, "I8", 1, 1, nullptr, nullptr},
    {kI16, "I16", 1, 2, nullptr, nullptr},
    {kI32, "I32", 1, 4, nullptr, nullptr},
    {kI64, "I64", 1, 8, nullptr, nullptr},
    {kF64, "F64", 1, 8, nullptr, nullptr},
    {kIQ1_M, "IQ1_M", 256, 56, nullptr, nullptr},
    {kBF16, "BF16", 1, 2, ggml::DecodeBF16, ggml::QuantizeBF16},
    {kTQ1_0, "TQ1_0", 256, 54, ggml::DecodeTQ1_0, ggml::QuantizeTQ1_0},
    {kTQ2_0, "TQ2_0", 256, 66, ggml::DecodeTQ2_0, ggml::QuantizeTQ2_0},
    {kMXFP4, "MXFP4", 32, 17, ggml::DecodeMXFP4, ggml::QuantizeMXFP4},
};

// " F32 F16 …": the types for which `has` holds.
template <typename Has>
std::string Names(Has has) {
  std::string names;
  for (const GgmlTypeInfo& row : kTypes) {
    if (has(row)) names += fmt::format(" {}", row.name);
  }
  return names;
}

void CheckSizes(const GgmlTypeInfo& row, size_t bytes, size_t values) {
  const auto block_bytes = static_cast<size_t>(row.bytes), block = static_cast<size_t>(row.block);
  OCTAVO_CHECK(bytes % block_bytes == 0 && values % block == 0 && bytes / block_bytes == values / block);
}

}  // namespace

std::span<const GgmlTypeInfo> AllGgmlTypes() { return kTypes; }

const GgmlTypeInfo* FindGgmlType(uint32_t value) {
  for (const GgmlTypeInfo& row : kTypes) {
    if (static_cast<uint32_t>(row.type) == value) return &row;
  }
  return nullptr;
}

const GgmlTypeInfo* FindGgmlType(std::string_view name) {
  for (const GgmlTypeInfo& row : kTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const GgmlTypeInfo& Info(GgmlType type) {
  const GgmlTypeInfo* row = FindGgmlType(static_cast<uint32_t>(type));
  OCTAVO_CHECK(row != nullptr);
  return *row;
}

void DecodeBlocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const GgmlTypeInfo& row = Info(type);
  if (row.decode == nullptr) {
    throw Error(ErrorCode::kFile, fmt::format("GGML type {} is not supported", row.name),
                "known:" + Names([](const GgmlTypeInfo& one) { return one.decode != nullptr; }));
  }
  CheckSizes(row, blocks.size(), values.size());
  const ScopedSubnormals as_stored;
  const auto* at = reinterpret_cast<const uint8_t*>(blocks.data());
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(row.block), at += row.bytes) {
    row.decode(at, values.data() + i);
  }
}

void QuantizeBlocks(GgmlType type, std::span<const float> values, std::span<std::byte> blocks) {
  const GgmlTypeInfo& row = Info(type);
  if (row.quantize == nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("GGML type {} can be read but not written", row.name),
                "known:" + Names([](const GgmlTypeInfo& one) { return one.quantize != nullptr; }));
  }
  CheckSizes(row, blocks.size(), values.size());
  const ScopedSubnormals as_stored;
  auto* at = reinterpret_cast<uint8_t*>(blocks.data());
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(row.block), at += row.bytes) {
    row.quantize(values.data() + i, at);
  }
}

}  // namespace octavo
