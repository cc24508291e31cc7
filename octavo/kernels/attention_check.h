// The checks at the door of attention: shapes, strides, formats and tables that do not fit are usage errors that name
// the place. Not for callers.
#pragma once

#include "octavo/kernels/attention_types.h"

namespace octavo::kernels {

void CheckAttention(const AttentionCall& call, const AttentionResult& result);
void CheckAttention(const AttentionCall& call, const AttentionGradients& gradients);

}  // namespace octavo::kernels
