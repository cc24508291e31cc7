// The loss of multi-token prediction, added to a training loss. Used by Loss alone.
#pragma once

#include "octavo/models/model.h"

namespace octavo::models {

struct MtpBatch {
  const Tensor &tokens, &targets, &segmentation;  // i32 [B, T]; the segmentation is the targets'
  const ops::Rows& rows;
};

// The scalar `scale` * sum over layers and targets of the cross-entropy; `hidden` is before the model's last norm.
ops::Var MtpLoss(ops::Context& context, Model& model, const ops::Var& hidden, const MtpBatch& batch, double scale,
                 int vocab_tiling, double* xent_sum);

}  // namespace octavo::models
