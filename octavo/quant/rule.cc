#include "octavo/quant/rule.h"

#include <re2/re2.h>

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/ops/site.h"

namespace octavo::quant {

struct RuleSet::Compiled {
  std::vector<std::unique_ptr<re2::RE2>> expressions;
};

RuleSet::RuleSet(std::vector<Rule> rules) : rules_(std::move(rules)), compiled_(std::make_unique<Compiled>()) {
  for (const Rule& rule : rules_) {
    re2::RE2::Options options;
    options.set_log_errors(false);
    auto expression = std::make_unique<re2::RE2>(rule.module_path, options);
    if (!expression->ok()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: module_path '{}': {}", rule.where.empty() ? "rule" : rule.where, rule.module_path,
                              expression->error()),
                  "expected an RE2 expression that matches whole paths: decoder/layers_.*/mlp/wi_[01]");
    }
    compiled_->expressions.push_back(std::move(expression));
  }
}

RuleSet::~RuleSet() = default;
RuleSet::RuleSet(RuleSet&&) noexcept = default;
RuleSet& RuleSet::operator=(RuleSet&&) noexcept = default;

std::optional<int> RuleSet::Match(std::string_view path, ops::OpKind op, bool has_weight) const {
  const std::string scanned = ops::ScannedPath(path);
  for (size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    // Caches are meant only by rules about them.
    if (rule.kv.has_value() != (op == ops::OpKind::kKvCache)) continue;
    if (!rule.ops.empty() && std::find(rule.ops.begin(), rule.ops.end(), op) == rule.ops.end()) continue;
    if (rule.only_weights && !has_weight) continue;
    const re2::RE2& expression = *compiled_->expressions[i];
    const bool matches = re2::RE2::FullMatch(re2::StringPiece(path.data(), path.size()), expression) ||
                         (scanned != path && re2::RE2::FullMatch(scanned, expression));
    if (matches) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace octavo::quant
