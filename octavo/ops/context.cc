#include "octavo/ops/context.h"

namespace octavo::ops {

Site Context::NextSite(OpKind op) { return Site{model, path_, op, counts_[{path_, op}]++}; }

Scope::Scope(Context& context, std::string_view name) : context_(context), length_(context.path_.size()) {
  if (!context_.path_.empty()) context_.path_ += '/';
  context_.path_ += name;
}

Scope::~Scope() { context_.path_.resize(length_); }

}  // namespace octavo::ops
