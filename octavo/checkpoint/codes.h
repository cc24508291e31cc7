// Quantized parameters on disk (docs/formats/checkpoint.md): "<name>.codes", "<name>.scale" and perhaps "<name>.zero",
// with codes of fewer than 8 bits packed. The one place that knows this form; used by the converter and the loader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/checkpoint/manifest.h"
#include "octavo/checkpoint/safetensors_writer.h"
#include "octavo/tensor/qarray.h"

namespace octavo {

inline constexpr const char* kCodesSuffix = ".codes";
inline constexpr const char* kScaleSuffix = ".scale";
inline constexpr const char* kZeroSuffix = ".zero";

struct EncodedTensor {
  TensorEntry entry;
  Tensor bytes;  // contiguous
};

// The tensors of a parameter, codes first.
std::vector<EncodedTensor> EncodeCodes(const std::string& name, const QArray& array);

// What the manifest says of it; errors are the caller's to fill in.
ManifestQuantized DescribeCodes(const QArray& array);

// The way back. What does not fit the description is a file error that names `where` and the parameter.
QArray DecodeCodes(const std::string& where, const std::string& name, const ManifestQuantized& described,
                   const Tensor& codes, const Tensor& scale, const std::optional<Tensor>& zero);

}  // namespace octavo
