// Rules, written outside the model: which sites they mean (a regex over the whole module path, kinds of op) and how
// such a site is quantized. The first rule that matches a site decides; a rule with no formats leaves the site in
// float, which is how exceptions are written. Rules are data: recipes and users write them as YAML (docs/recipes.md),
// plans apply them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/config/yaml.h"
#include "octavo/numerics/format.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/site.h"
#include "octavo/quant/how_to_quantize.h"

namespace octavo::quant {

// Qwix: each operand has a format and a calibration; the gradient has its own; scales per channel or per tile.
struct QwixTreatment {
  std::optional<Format> weight, activation, gradient;
  Calibration weight_calibration, activation_calibration, gradient_calibration;
  std::optional<TileSize> tile;                  // of the last contracted axis, both operands
  std::optional<TileSize> weight_gradient_tile;  // of the summed token axis in the weight's gradient
  bool per_tensor = false;                       // disable_channelwise_axes
  bool static_activation = false;                // the range is a running average
  std::vector<int> activation_batch_axes = {0};  // averaged over first
  Rounding gradient_rounding = Rounding::kNearest;
  std::vector<int> noise_axes = {0};
  std::optional<bool> original_residuals;  // unset: when nothing quantizes the gradient
  bool mask_gradient = true;               // zero where the calibrated range clipped
  int sparsity_n = 0, sparsity_m = 0;      // keep n of m weights; 0: all
  int sparsity_start = 50, sparsity_update = 10;

  bool HasSparsity() const { return sparsity_n > 0; }
};

// AQT: six operands, two for each of the three products.
struct AqtTreatment {
  std::optional<Format> activation, weight;              // forward
  std::optional<Format> grad_lhs, grad_rhs;              // both operands of that product
  bool bf16_products = false;                            // the dot's result is rounded to bf16 before scaling
  bool forward_codes = false;                            // backward uses the forward's codes (use_fwd_quant)
  Rounding gradient_rounding = Rounding::kNearest;       // of the incoming gradient
  int64_t weight_gradient_shards = 1;                    // blocks of the first summed axis
  bool per_tensor = false;                               // all six scales
  std::array<std::optional<double>, 6> constant_bounds;  // forward lhs, rhs; grad_lhs lhs, rhs; grad_rhs lhs, rhs
  double activation_clip = 1, weight_clip = 1;           // multiply the range found
  int64_t tile = 0;                                      // of every contracted axis; 0: none
};

// Scales from the amax histories of earlier steps.
struct DelayedTreatment {
  enum class Form : uint8_t {
    kDirect,             // codes meet in the dot, scales come after (flax)
    kDecoded,            // operands and gradient are rounded to the format and decoded (flax QDQ)
    kTransformerEngine,  // history first, then scale; codes meet in the dot
  };
  Form form = Form::kDirect;
  Format forward = Format::kF8E4M3FN, gradient = Format::kF8E5M2;
  int history = 1024;
};

// Scales of blocks, or of the tensor, found in the same step (Transformer Engine's recipes).
struct BlockTreatment {
  enum class Form : uint8_t { kCurrentScaling, kMxfp8, kNvfp4 };
  Form form = Form::kCurrentScaling;
  bool hadamard = false;  // nvfp4: rotate what the weight's gradient sums
};

// Ours: int4 weights with a scale per group along K, int8 activations per token, integer products per group.
struct GroupedTreatment {
  Format weight = Format::kInt4, activation = Format::kInt8;
  int64_t group = 128;  // 0: one scale per output channel
};

using Treatment = std::variant<QwixTreatment, AqtTreatment, DelayedTreatment, BlockTreatment, GroupedTreatment>;

// Keys and values on their way into attention: stored like this and read back, in training and serving alike.
struct KvTreatment {
  ops::KvFormat format;
};

struct Rule {
  std::string module_path = ".*";      // RE2, must match the whole path (or its scanned spelling)
  std::vector<ops::OpKind> ops;        // empty: every kind
  bool only_weights = false;           // only dots with a weight operand
  std::optional<Treatment> treatment;  // unset: leave the site in float
  std::optional<KvTreatment> kv;       // set: the rule is about caches, and about nothing else
  std::string where;                   // "rules.yml:3", for errors
};

// What the YAML of rules may refer to as $name: the options of a recipe. Values are as a user would write them.
using Options = std::vector<std::pair<std::string, std::string>>;

// A list of rules. Keys are those of Qwix (module_path, op_names, weight_qtype, act_qtype, bwd_qtype, …), or one of
// aqt, delayed, block, grouped, kv_cache with a map. An unknown key, format, op or method is an error with its line and
// the nearest names.
std::vector<Rule> ParseRules(const Yaml& list, const Options& options = {});

// Rules with their expressions compiled.
class RuleSet {
 public:
  explicit RuleSet(std::vector<Rule> rules);
  ~RuleSet();
  RuleSet(RuleSet&&) noexcept;
  RuleSet& operator=(RuleSet&&) noexcept;

  const std::vector<Rule>& rules() const { return rules_; }
  // The index of the first rule that matches; nullopt when none does.
  std::optional<int> Match(std::string_view path, ops::OpKind op, bool has_weight) const;

 private:
  struct Compiled;
  std::vector<Rule> rules_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace octavo::quant
