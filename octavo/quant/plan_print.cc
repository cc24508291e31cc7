// The plan as people read it.
#include <algorithm>
#include <map>
#include <set>

#include "octavo/base/error.h"
#include "octavo/quant/plan.h"

namespace octavo::quant {
namespace {

std::string Cell(const OperandPlan& operand) {
  if (!operand.format) return "float";
  std::string text(Info(*operand.format).name);
  if (!operand.granularity.empty()) text += ", " + operand.granularity;
  if (!operand.extent.empty() && operand.extent != "all") text += fmt::format(" ({})", operand.extent);
  if (!operand.calibration.empty()) text += ", " + operand.calibration;
  return text;
}

std::string Short(const ProductPlan& product) {
  if (!product.lhs.format && !product.rhs.format) return "float";
  const auto name = [](const OperandPlan& operand) {
    return std::string(operand.format ? Info(*operand.format).name : "float");
  };
  const std::string lhs = name(product.lhs), rhs = name(product.rhs);
  return lhs == rhs ? lhs : lhs + " x " + rhs;
}

void AppendProduct(std::string& text, std::string_view name, const ProductPlan& product) {
  text += fmt::format("    {:<9} {:<44} x  {:<44} {}", name, Cell(product.lhs), Cell(product.rhs), product.kernel);
  if (!product.declined.empty()) text += fmt::format("  [{}]", fmt::join(product.declined, "; "));
  text += '\n';
}

bool HasBackward(const SitePlan& site) {
  return site.grad_lhs.lhs.format || site.grad_lhs.rhs.format || site.grad_rhs.lhs.format || site.grad_rhs.rhs.format;
}

}  // namespace

std::string PlanTable(const Plan& plan) {
  std::string text;
  const double macs = static_cast<double>(std::max<int64_t>(plan.macs(), 1));
  int64_t bits = 0;
  for (const SitePlan& site : plan.sites) bits += site.weight_bits;
  for (const SitePlan& site : plan.sites) {
    text += fmt::format("{}  {} x {}  {}  {:.2f} % of FLOPs", site.site.ToString(), site.lhs, site.rhs,
                        site.rule < 0 ? std::string("no rule") : fmt::format("rule {}", site.rule + 1),
                        100.0 * static_cast<double>(site.macs) / macs);
    if (!site.weight.empty()) {
      text += fmt::format("  {:.2f} % of weight bytes",
                          bits == 0 ? 0.0 : 100.0 * static_cast<double>(site.weight_bits) / static_cast<double>(bits));
    }
    text += fmt::format("  coupling {}\n", NameOf(site.coupling));
    if (!site.treatment) {
      text += "    float\n";
      continue;
    }
    AppendProduct(text, "forward", site.forward);
    if (HasBackward(site)) {
      AppendProduct(text, "grad_lhs", site.grad_lhs);
      AppendProduct(text, "grad_rhs", site.grad_rhs);
    }
  }
  return text + CoverageLine(plan);
}

std::string CoverageLine(const Plan& plan) {
  int quantized = 0;
  std::vector<std::string> forward, backward, left;
  const auto add = [](std::vector<std::string>& list, const std::string& word) {
    if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
  };
  constexpr size_t kFewSites = 16;
  const bool merge_layers = plan.sites.size() > kFewSites;  // "decoder/layers/mlp" for all layers
  for (const SitePlan& site : plan.sites) {
    if (!site.treatment) {
      const std::string path = merge_layers ? ops::ScannedPath(site.site.path) : site.site.path;
      add(left, fmt::format("{} ({})", path, site.rule < 0 ? "no rule" : fmt::format("rule {}", site.rule + 1)));
      continue;
    }
    ++quantized;
    add(forward, Short(site.forward));
    add(backward, HasBackward(site) ? Short(site.grad_rhs) : "float");
  }
  std::string text = fmt::format("plan      {} fwd, {} bwd   {} of {} matmuls   {:.1f} % of FLOPs\n",
                                 forward.empty() ? "float" : fmt::format("{}", fmt::join(forward, " and ")),
                                 backward.empty() ? "float" : fmt::format("{}", fmt::join(backward, " and ")),
                                 quantized, plan.sites.size(), 100.0 * plan.quantized_share());
  if (!left.empty()) text += fmt::format("          float: {}\n", fmt::join(left, ", "));
  if (!plan.kv_caches.empty()) {
    const ops::KvFormat& format = plan.kv_caches.front().format;
    text += fmt::format("          keys and values: {}{}, {} attention ops\n", Info(format.format).name,
                        !format.quantized()     ? ""
                        : format.scale_per_head ? " with a scale per token and head"
                                                : " with a scale per token",
                        plan.kv_caches.size());
  }
  return text;
}

}  // namespace octavo::quant
