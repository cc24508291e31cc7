#include "octavo/ops/site.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace octavo::ops {
namespace {

constexpr std::array<std::pair<OpKind, std::string_view>, 7> kNames = {
    {{OpKind::kDotGeneral, "dot_general"},
     {OpKind::kEinsum, "einsum"},
     {OpKind::kRaggedDot, "ragged_dot"},
     {OpKind::kGmm, "gmm"},
     {OpKind::kConvGeneralDilated, "conv_general_dilated"},
     {OpKind::kAttention, "attention"},
     {OpKind::kKvCache, "kv_cache"}}};

}  // namespace

std::string_view NameOf(OpKind op) {
  for (const auto& [kind, name] : kNames) {
    if (kind == op) return name;
  }
  return "unknown";
}

std::optional<OpKind> OpKindByName(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::string Site::OpId() const { return fmt::format("{}{}", NameOf(op), ordinal); }

std::string Site::ToString() const { return fmt::format("{} {}", path, OpId()); }

std::string ScannedPath(std::string_view path) {
  std::string result;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    std::string_view part = path.substr(start, end - start);
    const size_t underscore = part.rfind('_');
    // "layers_3", "dense_layers_0": a name that ends in "layers" with a number behind it.
    if (underscore != std::string_view::npos && part.substr(0, underscore).ends_with("layers") &&
        underscore + 1 < part.size() &&
        part.find_first_not_of("0123456789", underscore + 1) == std::string_view::npos) {
      part = part.substr(0, underscore);
    }
    if (start > 0) result += '/';
    result += part;
    start = end + 1;
  }
  return result;
}

}  // namespace octavo::ops
