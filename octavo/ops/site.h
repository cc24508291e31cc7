// Where an op stands in a model: the name by which rules, plans, profiles and errors speak of it. Follows MaxText: the
// path of the module, the kind of op, and its number among the ops of that kind in one call of the module.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::ops {

enum class OpKind : uint8_t { kDotGeneral, kEinsum, kRaggedDot, kGmm, kConvGeneralDilated, kAttention, kKvCache };

std::string_view NameOf(OpKind op);  // "dot_general", "einsum", "ragged_dot", "gmm", …
std::optional<OpKind> OpKindByName(std::string_view name);

// Tells apart the models of one process: a reference model of DPO or distillation is another one.
using ModelId = int;

struct Site {
  ModelId model = 0;
  std::string path;  // "decoder/layers_3/mlp/wi_0"
  OpKind op = OpKind::kDotGeneral;
  int ordinal = 0;

  std::string OpId() const;      // "dot_general0"
  std::string ToString() const;  // "decoder/layers_3/mlp/wi_0 dot_general0"
  auto operator<=>(const Site&) const = default;
};

struct SiteHash {
  size_t operator()(const Site& site) const {
    const auto kind = static_cast<size_t>(site.op) | static_cast<size_t>(site.ordinal) << 8;
    return std::hash<std::string_view>()(site.path) + 31 * (kind + (static_cast<size_t>(site.model) << 32));
  }
};

// The spelling of a path under scanned layers: "decoder/layers_3/mlp" -> "decoder/layers/mlp". Rules may match either.
std::string ScannedPath(std::string_view path);

}  // namespace octavo::ops
