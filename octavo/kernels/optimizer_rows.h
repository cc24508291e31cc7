// The loops behind optimizer.h. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

namespace octavo::kernels {

struct AdamStep {
  float decay1, fresh1, decay2, fresh2;  // fresh = 1 - decay
  float inverse1, inverse2;              // 1 / correction
  float epsilon, epsilon_root, weight_decay, rate, grad_scale;
  const float* grad;
  float* weight;
  float* moment1;
  float* moment2;
};
void AdamStepRef(const AdamStep& step, int64_t begin, int64_t end);
void AdamStepAvx2(const AdamStep& step, int64_t begin, int64_t end);

struct SgdStep {
  float rate, momentum, grad_scale;
  bool nesterov;
  const float* grad;
  float* weight;
  float* trace;
};
void SgdStepRef(const SgdStep& step, int64_t begin, int64_t end);
void SgdStepAvx2(const SgdStep& step, int64_t begin, int64_t end);

}  // namespace octavo::kernels
