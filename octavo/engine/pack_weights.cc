#include "octavo/engine/pack_weights.h"

#include "octavo/base/error.h"
#include "octavo/ops/rows.h"

namespace octavo::engine {
namespace {

int64_t BytesOf(const ops::Parameter& parameter) {
  if (!parameter.frozen()) return parameter.tensor().bytes();
  const QArray& codes = parameter.qarray();
  const auto bytes = [](const Tensor& part) { return part.is_meta() ? 0 : part.bytes(); };
  return bytes(codes.qvalue) + bytes(codes.scale) + (codes.zero_point ? bytes(*codes.zero_point) : 0);
}

}  // namespace

PackedModel PackWeights(const RunnerParts& parts, quant::Provider& provider, bool allow_batch_coupled) {
  for (const quant::SitePlan& site : provider.plan().sites) {
    if (allow_batch_coupled || site.coupling != quant::Coupling::kBatch) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: the scale of its activations covers the whole batch, so answers would depend on who "
                            "else asks",
                            site.site.ToString()),
                "choose a recipe with scales per token, or allow_batch_coupled=true");
  }
  models::Model& model = parts.model;
  kernels::Workspace workspace;
  ops::Context context(parts.pool, parts.isa, workspace);
  context.interceptor = &provider;
  context.state = parts.state;
  const ops::Rows rows = ops::RowsOfShape(1, 1);
  context.rows = &rows;
  context.StartModel();
  const Tensor token = Tensor::Zeros({1, 1}, DType::kI32);
  PackedModel result;
  // Layer by layer, so that at most one layer has its codes twice.
  const auto release = [&] {
    for (ops::Parameter* parameter : model.parameters()) {
      if (!parameter->frozen() || parameter->qarray().qvalue.is_meta()) continue;
      result.packed += provider.weights().Release(*parameter) ? 1 : 0;
    }
  };
  ops::Var x = model.Embed(context, token, rows);
  for (int i = 0; i < model.layers(); ++i) {
    x = model.Layer(context, i, x, rows);
    release();
  }
  model.Logits(context, model.Norm(context, x));
  release();
  for (const ops::Parameter* parameter : model.parameters()) {
    result.bytes += BytesOf(*parameter);
    result.kept += parameter->frozen() && !parameter->qarray().qvalue.is_meta() ? 1 : 0;
  }
  result.bytes += provider.weights().bytes();
  return result;
}

}  // namespace octavo::engine
