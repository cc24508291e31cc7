#include "octavo/quant/run.h"

#include <fmt/format.h>

namespace octavo::quant {
namespace {

constexpr std::string_view kNames[3][2] = {
    {"forward.lhs", "forward.rhs"}, {"grad_lhs.lhs", "grad_lhs.rhs"}, {"grad_rhs.lhs", "grad_rhs.rhs"}};
constexpr std::string_view kTexts[3][2] = {{"forward.lhs", "forward.rhs"},
                                           {"grad_lhs.lhs (output gradient)", "grad_lhs.rhs"},
                                           {"grad_rhs.lhs (output gradient)", "grad_rhs.rhs"}};

}  // namespace

std::string_view NameOf(Spot spot) { return kNames[static_cast<int>(spot.product)][static_cast<int>(spot.side)]; }

std::string_view Describe(Spot spot) { return kTexts[static_cast<int>(spot.product)][static_cast<int>(spot.side)]; }

Spot Exchanged(Spot spot) {
  switch (spot.product) {
    case ProductKind::kForward:
      spot.side = spot.side == OperandSide::kLhs ? OperandSide::kRhs : OperandSide::kLhs;
      return spot;
    case ProductKind::kGradLhs:
      return {ProductKind::kGradRhs, spot.side};
    case ProductKind::kGradRhs:
      break;
  }
  return {ProductKind::kGradLhs, spot.side};
}

std::string Arithmetic::Where(std::string_view op) const {
  std::string text(op);
  if (!site.empty()) text += fmt::format(" at {}", site);
  if (!operand.empty()) text += fmt::format(", {}", operand);
  return text;
}

Run At(const Run& run, Spot spot) {
  Run result = run;
  result.arithmetic.operand = Describe(run.exchanged ? Exchanged(spot) : spot);
  return result;
}

}  // namespace octavo::quant
