// The plan: what will happen at every dot of a model, found before the run by a dry run on meta tensors. It serves
// trainer, converter and engine alike, is printed by `octavo plan`, and holds the answer to every "what is this site
// quantized to". Made once; providers look sites up in it. It fixes the treatment of a site; kernels may then be chosen
// among bit-equal ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/quant/dot_qt.h"
#include "octavo/quant/rule.h"

namespace octavo::quant {

// What an activation's scale depends on besides its own token. `serve` refuses batch unless told otherwise.
enum class Coupling : uint8_t { kNone, kSequence, kShard, kBatch };
std::string_view NameOf(Coupling coupling);

// One operand of one product.
struct OperandPlan {
  std::optional<Format> format;  // unset: float
  std::string granularity;       // "per row", "per column", "tiles of 128", "per tensor", "codes of the forward pass"
  std::string extent;            // what shares a scale: "512 elements", "1 x 4096", "all"
  std::string calibration;       // "absmax", "fixed,-224,224", "history of 1024", "none"
  int64_t scales = 0;
};

struct ProductPlan {
  OperandPlan lhs, rhs;
  std::string kernel;                 // "i8", "u4", "f32", "f32 after decoding"
  std::vector<std::string> declined;  // "i8: lhs stays float", fastest first
};

struct SitePlan {
  ops::Site site;
  Shape lhs, rhs;
  DotDims dims;  // empty for ragged dots
  DType dtype = DType::kF32;
  std::string weight;  // the parameter's name; empty when both operands are activations
  bool weight_is_lhs = false;
  DType weight_dtype = DType::kF32;  // that the weight arrives in, before it is quantized
  int rule = -1;                     // index into the rules; -1: none matched
  std::optional<Treatment> treatment;
  ProductPlan forward, grad_lhs, grad_rhs;
  Coupling coupling = Coupling::kNone;
  int64_t macs = 0;  // of the forward product
  int64_t weight_elements = 0;
  int64_t weight_bits = 0;  // codes and scales, as stored when frozen
};

struct KvPlan {
  ops::Site site;
  int rule = -1;
  ops::KvFormat format;
};

struct Plan {
  std::vector<Rule> rules;
  std::vector<SitePlan> sites;    // in the order of the forward pass
  std::vector<KvPlan> kv_caches;  // attention ops whose keys and values a rule stores in another format

  const SitePlan* Find(const ops::Site& site) const;
  int64_t macs() const;
  double quantized_share() const;  // of the multiply-adds, 0 … 1
};

struct PlanOptions {
  std::string model_name = "the model";
  bool allow_unused_rules = false;  // for files of rules meant for several models
  bool backward = true;             // check the gradients' tiles too
};

// Runs `model` once on meta tensors and applies the rules. Usage errors, each with the nearest existing paths: a rule
// that matches no site; rules that quantize nothing; a tile that does not divide; K past the exact bound; an op that
// the recipe cannot do.
Plan MakePlan(FunctionRef<void(ops::Context&)> model, const RuleSet& rules, const PlanOptions& options = {});

// The config of a Qwix site: sides resolved by role.
DotQtConfig ConfigOf(const QwixTreatment& treatment, bool lhs_is_weight, bool rhs_is_weight);

// The table that `octavo plan` prints, with the coverage in its last lines.
std::string PlanTable(const Plan& plan);
// "int8 fwd, int8 bwd   42 of 44 matmuls   98.7 % of FLOPs", and the sites left in float.
std::string CoverageLine(const Plan& plan);

}  // namespace octavo::quant
