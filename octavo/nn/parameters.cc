#include "octavo/nn/parameters.h"

#include "octavo/base/check.h"

namespace octavo::nn {

ops::Parameter* ParameterSet::Make(const std::string& name, const Shape& shape, DType dtype, const Init& init) {
  OCTAVO_CHECK(!by_name_.contains(name));
  Entry& entry = entries_.emplace_back(Entry{ops::Parameter{name, Tensor::Meta(shape, dtype)}, init});
  order_.push_back(&entry.parameter);
  by_name_.emplace(name, &entry);
  return &entry.parameter;
}

ops::Parameter* ParameterSet::Find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &at->second->parameter;
}

const Init& ParameterSet::InitOf(const ops::Parameter& parameter) const {
  const auto at = by_name_.find(parameter.name);
  OCTAVO_CHECK(at != by_name_.end());
  return at->second->init;
}

Builder Builder::Child(std::string_view name) const {
  Builder child = *this;
  if (!child.path_.empty()) child.path_ += '/';
  child.path_ += name;
  return child;
}

ops::Parameter* Builder::Make(std::string_view name, const Shape& shape, const Init& init) const {
  return set_.Make(Child(name).path_, shape, weight_dtype_, init);
}

}  // namespace octavo::nn
