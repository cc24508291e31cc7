// The matmuls of a model as a table in JSON, in place of the model itself: what `octavo plan` reads, and the form in
// which site tables of other systems are recorded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/site.h"
#include "octavo/tensor/dot_dims.h"
#include "octavo/tensor/shape.h"

namespace octavo {

struct SiteTableEntry {
  std::string path;
  ops::OpKind op = ops::OpKind::kDotGeneral;
  Shape lhs, rhs;        // for an einsum: its first and second operand
  DotDims dims;          // of a dot_general
  std::string equation;  // of an einsum
  std::string weight;    // the parameter's name; empty: two activations
  bool weight_is_lhs = false;
};

struct SiteTable {
  std::string name;
  std::vector<SiteTableEntry> entries;
};

// A malformed table is a file error that names the entry.
SiteTable ParseSiteTable(std::string_view text, std::string_view source);

// Performs the ops of the table on meta tensors, as the model would.
void RunSiteTable(const SiteTable& table, ops::Context& context);

}  // namespace octavo
