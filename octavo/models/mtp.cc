#include "octavo/models/mtp.h"

#include "octavo/base/error.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

// Every row moved `places` to the left, zeros behind it.
Tensor Shifted(const Tensor& ids, int places) {
  if (ids.is_meta()) return ids;
  const Tensor from = ids.Contiguous();
  const int64_t rows = ids.dim(0), length = ids.dim(1);
  Tensor moved = Tensor::Zeros(ids.shape(), DType::kI32);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t + places < length; ++t) {
      moved.MutableData<int32_t>()[row * length + t] = from.Data<int32_t>()[row * length + t + places];
    }
  }
  return moved;
}

// Segments of the targets that layer `k` predicts: 0 where the token k places on is padding or of another segment.
Tensor TargetsOf(const Tensor& segmentation, int k) {
  Tensor moved = Shifted(segmentation, k);
  if (moved.is_meta()) return moved;
  const Tensor own = segmentation.Contiguous();
  for (int64_t i = 0; i < moved.size(); ++i) {
    if (moved.Data<int32_t>()[i] != own.Data<int32_t>()[i]) moved.MutableData<int32_t>()[i] = 0;
  }
  return moved;
}

}  // namespace

ops::Var Model::MtpLayer(ops::Context&, int, const ops::Var&, const ops::Var&, const ops::Rows&) {
  ThrowUsage("decoder_block {}: multi-token prediction is deepseek's", config().decoder_block);
}

int64_t MtpWeights(const Tensor& target_segmentation, int layers) {
  int64_t count = 0;
  for (int k = 1; k <= layers; ++k) {
    for (const int32_t segment : TargetsOf(target_segmentation, k).ToVector<int32_t>()) count += segment != 0 ? 1 : 0;
  }
  return count;
}

ops::Var MtpLoss(ops::Context& context, Model& model, const ops::Var& hidden, const MtpBatch& batch, double scale,
                 int vocab_tiling, double* xent_sum) {
  ops::Var x = hidden, total;
  for (int k = 1; k <= model.mtp_layers(); ++k) {
    const ops::Var embedded = model.Embed(context, Shifted(batch.tokens, k), batch.rows);
    x = model.MtpLayer(context, k, x, embedded, batch.rows);
    ops::LossSums sums;
    const ops::Var loss =
        model.HeadLoss(context, model.Norm(context, x), Shifted(batch.targets, k), TargetsOf(batch.segmentation, k),
                       {.z_loss = 0, .factor = scale, .tiles = vocab_tiling}, &sums);
    *xent_sum += sums.xent;
    total = k == 1 ? loss : ops::Add(context, total, loss);
  }
  return total;
}

}  // namespace octavo::models
