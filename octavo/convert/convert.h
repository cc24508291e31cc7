// The converter: any model that weights/ opens becomes a checkpoint of Octavo with quantized weights, or a model folder
// or GGUF file for other tools. Streams one parameter at a time; the target appears whole or not at all, after it was
// read back and checked. Used by `octavo convert`. Tokenizing text for max_kl is the caller's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/log.h"
#include "octavo/base/publish.h"
#include "octavo/base/thread_pool.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/stored_model.h"

namespace octavo::convert {

enum class TargetFormat : uint8_t { kOctavo, kHf, kGguf };

// How a checkpoint in floats spells its parameters. Quantized ones are always unrolled and bare.
struct TreeLayout {
  bool scanned = false;  // layers stacked on param_scan_axis under "layers", as MaxText keeps them
  int param_scan_axis = 1;
  std::string collection;  // before every name: "", "params/" or "params/params/"
};

struct ConvertRequest {
  const weights::StoredModel& source;
  std::filesystem::path target;
  TargetFormat format = TargetFormat::kOctavo;
  const quant::RecipeChoice* recipe = nullptr;  // null: the source's own
  bool parameters_only = false;     // keep floats, and the recipe beside them: a run's checkpoint without its optimizer
  bool dequantize = false;          // codes become floats, and no recipe stays
  std::optional<DType> dtype = {};  // of parameters that stay floats; unset: as they are
  TreeLayout tree = {};
  bool replace = false;
  bool dry_run = false;
  std::optional<double> max_kl = {};                  // nothing is published over it
  std::function<std::vector<int32_t>()> tokens = {};  // of the text that KL is measured on; empty: not measured
  uint64_t file_bytes = uint64_t{2} << 30;
  Log& log;
  ThreadPool& pool;
  kernels::Isa isa;
  PublishFault fault = nullptr;
};

struct ConvertSummary {
  int64_t parameters = 0, quantized = 0;
  int64_t planned_bytes = 0;  // of parameters, by the plan
  uint64_t bytes = 0;         // of everything written
  int64_t peak_bytes = 0;     // resident, until all was written
  double write_seconds = 0;
  std::vector<std::string> carried;
  std::string bits;  // of the written checkpoint
  std::optional<double> kl, kl_error;
};

// Prints read, write, carried and check lines to the log. Throws a check error (exit 3) when KL is over max_kl.
ConvertSummary Convert(const ConvertRequest& request);

}  // namespace octavo::convert
