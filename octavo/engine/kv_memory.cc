#include "octavo/engine/kv_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/interceptor.h"

namespace octavo::engine {
namespace {

// Answers every dot with a meta tensor and writes down what attention would store.
class SiteFinder : public ops::Interceptor {
 public:
  std::optional<ops::Var> Dot(ops::Context&, const ops::DotCall& call) override {
    return ops::Var(Tensor::Meta(DotShape(call.site.ToString(), call.lhs.shape(), call.rhs.shape(), call.dims),
                                 TypeOf(call.lhs, call.rhs)));
  }
  std::optional<ops::Var> RaggedDot(ops::Context&, const ops::RaggedCall& call) override {
    return ops::Var(Tensor::Meta({call.lhs.shape()[0], call.rhs.shape()[2]}, TypeOf(call.lhs, call.rhs)));
  }
  std::optional<ops::KvFormat> KvCache(ops::Context& context, const ops::KvCall& call) override {
    sites.push_back({context.path(), call.key.dim(2), call.key.dim(3), call.value.dim(3)});
    return std::nullopt;
  }

  std::vector<KvSite> sites;

 private:
  static DType TypeOf(const ops::Operand& lhs, const ops::Operand& rhs) {
    if (lhs.quantized()) return rhs.tensor().dtype();
    if (rhs.quantized()) return lhs.tensor().dtype();
    return ops::ProductType(lhs.tensor().dtype(), rhs.tensor().dtype());
  }
};

}  // namespace

std::vector<KvSite> KvSitesOf(models::Model& model) {
  ThreadPool pool(1);
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::Isa::kReference, workspace);
  SiteFinder finder;
  context.interceptor = &finder;
  const ops::Rows rows = ops::RowsOfShape(1, 1);
  context.rows = &rows;
  context.StartModel();
  ops::Var x = model.Embed(context, Tensor::Meta({1, 1}, DType::kI32), rows);
  for (int i = 0; i < model.layers(); ++i) x = model.Layer(context, i, x, rows);
  return finder.sites;
}

int64_t KvPageBytesOf(const std::vector<KvSite>& sites, const ops::KvFormat& format) {
  int64_t bytes = 0;
  for (const KvSite& site : sites) {
    bytes += ops::KvPageBytes(format, site.heads, site.key_width);
    bytes += ops::KvPageBytes(format, site.heads, site.value_width);
    bytes += 2 * ops::KvPageScales(format, site.heads) * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

ops::KvFormat KvFormatFor(models::Model& model, const quant::Plan& plan, const std::optional<ops::KvFormat>& asked) {
  const ops::KvFormat plain{model.config().dtype == DType::kBF16 ? Format::kBF16 : Format::kF32, false};
  if (plan.kv_caches.empty()) return asked.value_or(plain);
  const quant::KvPlan& first = plan.kv_caches.front();
  for (const KvSite& site : KvSitesOf(model)) {
    const auto at = std::find_if(plan.kv_caches.begin(), plan.kv_caches.end(),
                                 [&](const quant::KvPlan& cache) { return cache.site.path == site.path; });
    const bool covered = at != plan.kv_caches.end();
    if (covered && at->format == first.format) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: the recipe stores keys and values as {}, at {} as {}; a server keeps one format for "
                            "all layers",
                            site.path, covered ? KvFormatName(at->format) : KvFormatName(plain) + " (no rule)",
                            first.site.path, KvFormatName(first.format)),
                "give every attention op the same kv_cache rule (module_path: '.*'), or none");
  }
  if (asked && *asked != first.format) {
    throw Error(ErrorCode::kUsage,
                fmt::format("quantize_kvcache asks for keys and values as {}, the model's recipe stores them as {}",
                            KvFormatName(*asked), KvFormatName(first.format)),
                "drop quantize_kvcache, kv_quant_dtype and kv_quant_axis: the recipe's format is used");
  }
  return first.format;
}

std::string KvFormatName(const ops::KvFormat& format) {
  return fmt::format("{}{}", Info(format.format).name,
                     !format.quantized()     ? ""
                     : format.scale_per_head ? " with a scale per token and head"
                                             : " with a scale per token");
}

KvMemory::KvMemory(const std::vector<KvSite>& sites, const ops::KvFormat& format, int64_t pages)
    : page_bytes_(KvPageBytesOf(sites, format)) {
  pages_.format = format;
  pages_.pages = pages;
  const auto side = [&](int64_t heads, int64_t width) {
    ops::KvSidePages result;
    result.heads = heads;
    result.width = width;
    Tensor& data = memory_.emplace_back(Tensor::Empty({pages * ops::KvPageBytes(format, heads, width)}, DType::kU8));
    result.data = data.MutableRawData();
    if (format.quantized()) {
      Tensor& scale = memory_.emplace_back(Tensor::Empty({pages * ops::KvPageScales(format, heads)}, DType::kF32));
      result.scale = scale.MutableData<float>();
    }
    return result;
  };
  for (const KvSite& site : sites) {
    ops::KvLayerPages layer;
    layer.key = side(site.heads, site.key_width);
    layer.value = side(site.heads, site.value_width);
    pages_.layers.emplace(site.path, layer);
  }
}

void KvMemory::Copy(int32_t from, int32_t to) {
  const auto copy = [&](const ops::KvSidePages& side) {
    const int64_t bytes = ops::KvPageBytes(pages_.format, side.heads, side.width);
    const int64_t scales = ops::KvPageScales(pages_.format, side.heads);
    std::memcpy(side.data + to * bytes, side.data + from * bytes, static_cast<size_t>(bytes));
    if (side.scale != nullptr) {
      std::memcpy(side.scale + to * scales, side.scale + from * scales, static_cast<size_t>(scales) * sizeof(float));
    }
  };
  for (const auto& [path, layer] : pages_.layers) {
    copy(layer.key);
    copy(layer.value);
  }
}

}  // namespace octavo::engine
