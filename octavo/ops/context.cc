#include "octavo/ops/context.h"

namespace octavo::ops {

Site Context::NextSite(OpKind op) {
  int& count = counts_.At(path_, op);
  if (touched != nullptr && !touched->Has(path_, op)) touched->At(path_, op) = count;
  return Site{model, path_, op, count++};
}

Site Context::PeekSite(OpKind op) const { return Site{model, path_, op, counts_.Find(path_, op)}; }

Scope::Scope(Context& context, std::string_view name) : context_(context), length_(context.path_.size()) {
  if (!context_.path_.empty()) context_.path_ += '/';
  context_.path_ += name;
}

Scope::~Scope() { context_.path_.resize(length_); }

}  // namespace octavo::ops
