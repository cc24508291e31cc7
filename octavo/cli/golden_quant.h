// What the kinds about quantized arrays and dots share: the reference libraries' arguments as ours, and what to run
// with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/cli/golden.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/how_to_quantize.h"
#include "octavo/quant/run.h"

namespace octavo {

// Threads, scratch memory and arithmetic for one case. The versions in the header of a group say how divisions ran and
// which release made the block scales.
class GoldenRun {
 public:
  GoldenRun(const GoldenCase& golden, ThreadPool& pool);
  const quant::Run& run() const { return run_; }
  const quant::Arithmetic& arithmetic() const { return run_.arithmetic; }

 private:
  kernels::Workspace workspace_;
  quant::MacCount macs_;
  quant::Run run_;
};

// Arguments that are missing or null are nullopt; of another type, a file error.
std::optional<Format> FormatArg(const nlohmann::json& object, const std::string& key);
std::optional<quant::TileSize> TileArg(const nlohmann::json& object, const std::string& key);
quant::Calibration CalibrationArg(const nlohmann::json& object, const std::string& key);  // absmax when missing
bool FlagArg(const nlohmann::json& object, const std::string& key);                       // false when missing
std::vector<int> AxesArg(const nlohmann::json& axes);
std::optional<DType> DTypeArg(const nlohmann::json& name);
DotDims DotDimsArg(const nlohmann::json& dimension_numbers);
quant::HowToQuantize HowArg(const nlohmann::json& how);
RngKey KeyInput(const GoldenCase& golden, const std::string& name);

// A file error for a key that is not in the list: an argument that we would silently ignore.
void ExpectKeys(const nlohmann::json& object, std::initializer_list<std::string_view> known);

// Compares `<name>_qvalue`, `<name>_scale` and `<name>_zero_point` of a case with an array; `uses_rms` loosens as the
// data's rules say. Parts that the case does not have are skipped.
void CheckArray(const GoldenCase& golden, GoldenCheck& check, const std::string& name, const QArray& array);
// One output under the rules for ranges from root mean squares, whose sums are in another order.
void CheckOutput(const GoldenCase& golden, GoldenCheck& check, const std::string& name, const Tensor& actual);

}  // namespace octavo
