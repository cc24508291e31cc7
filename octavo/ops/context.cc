#include "octavo/ops/context.h"

namespace octavo::ops {

Site Context::NextSite(OpKind op) {
  const auto at = counts_.try_emplace({path_, op}, 0).first;
  if (touched != nullptr) touched->emplace(at->first, at->second);
  return Site{model, path_, op, at->second++};
}

Site Context::PeekSite(OpKind op) const {
  const auto at = counts_.find({path_, op});
  return Site{model, path_, op, at == counts_.end() ? 0 : at->second};
}

Scope::Scope(Context& context, std::string_view name) : context_(context), length_(context.path_.size()) {
  if (!context_.path_.empty()) context_.path_ += '/';
  context_.path_ += name;
}

Scope::~Scope() { context_.path_.resize(length_); }

}  // namespace octavo::ops
