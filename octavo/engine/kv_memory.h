// The memory of a model's key-value cache: which attention ops it has and what they store, found by a dry run, and the
// pages of all of them. Page p of every layer belongs together: one number is 64 tokens through the whole model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/models/model.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/quant/plan.h"
#include "octavo/tensor/tensor.h"

namespace octavo::engine {

struct KvSite {
  std::string path;  // of the attention op
  int64_t heads = 0, key_width = 0, value_width = 0;
};

// By a dry run on meta tensors: works for every architecture, frozen weights or not.
std::vector<KvSite> KvSitesOf(models::Model& model);

int64_t KvPageBytesOf(const std::vector<KvSite>& sites, const ops::KvFormat& format);

// The one format of the model's cache: what the plan's kv_cache rules say, else what was asked for, else the type of
// the computation. Usage errors: rules that leave some attention op out or store two in different formats (pages have
// one), and a format asked for that is not the plan's: the model was trained with caches like those.
ops::KvFormat KvFormatFor(models::Model& model, const quant::Plan& plan, const std::optional<ops::KvFormat>& asked);
// "int8 with a scale per token", "bfloat16".
std::string KvFormatName(const ops::KvFormat& format);

class KvMemory {
 public:
  KvMemory(const std::vector<KvSite>& sites, const ops::KvFormat& format, int64_t pages);

  const ops::KvPages& pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  // All layers of one page.
  void Copy(int32_t from, int32_t to);

 private:
  ops::KvPages pages_;
  int64_t page_bytes_ = 0;
  std::vector<Tensor> memory_;
};

}  // namespace octavo::engine
