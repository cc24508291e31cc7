#include "octavo/ops/remat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"

namespace octavo::ops {
namespace {

constexpr std::array<std::string_view, 23> kSaveNames = {"decoder_layer_input",
                                                         "context",
                                                         "mlpwi",
                                                         "mlpwi_0",
                                                         "mlpwi_1",
                                                         "mlpwo",
                                                         "moe_mlpwi_0",
                                                         "moe_mlpwi_1",
                                                         "moe_mlpwo",
                                                         "query_proj",
                                                         "key_proj",
                                                         "value_proj",
                                                         "kv_proj",
                                                         "qkv_proj",
                                                         "out_proj",
                                                         "query_wa_proj",
                                                         "kv_wa_proj",
                                                         "mla_q",
                                                         "mla_kv",
                                                         "attention_out",
                                                         "engram",
                                                         "indexer_cutoff_threshold",
                                                         "quantization"};

struct Named {
  std::string_view name;
  std::vector<std::string_view> saved;
};

const std::vector<std::string_view> kQkv = {"query_proj", "key_proj", "value_proj", "kv_proj", "qkv_proj"};

std::vector<std::string_view> Join(std::vector<std::string_view> names, std::initializer_list<std::string_view> more) {
  names.insert(names.end(), more);
  return names;
}

std::vector<Named> Policies() {
  const std::vector<std::string_view> minimal =
      Join(kQkv, {"out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv",
                  "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo"});
  return {
      {"full", {}},
      {"minimal", minimal},
      {"minimal_with_context", Join(minimal, {"context"})},
      {"minimal_flash", Join(minimal, {"context"})},
      {"minimal_with_quantization", Join(minimal, {"quantization"})},
      {"minimal_with_context_and_quantization", Join(minimal, {"context", "quantization"})},
      {"save_dot_with_context_except_mlp", Join(kQkv, {"context", "out_proj"})},
      {"save_dot_except_mlpwi", Join(kQkv, {"out_proj", "mlpwo"})},
      {"save_dot_except_mlp", Join(kQkv, {"out_proj"})},
      {"save_qkv_proj", kQkv},
      {"save_out_proj", {"out_proj"}},
      {"qkv_proj_offloaded", {"query_proj", "key_proj", "value_proj"}},
      {"minimal_offloaded", Join(minimal, {"context"})},
  };
}

}  // namespace

std::span<const std::string_view> SaveNames() { return kSaveNames; }

std::optional<RematPolicy> RematPolicyByName(std::string_view name) {
  if (name == "none") return RematPolicy{"none", true, {}};
  for (const Named& policy : Policies()) {
    if (policy.name == name) return RematPolicy{std::string(name), false, {policy.saved.begin(), policy.saved.end()}};
  }
  return std::nullopt;
}

RematPolicy CustomRematPolicy(std::span<const std::string> kept) {
  for (const std::string& name : kept) {
    if (std::find(kSaveNames.begin(), kSaveNames.end(), name) == kSaveNames.end()) {
      throw Error(ErrorCode::kUsage, fmt::format("remat_policy=custom: no activation is named {}", name),
                  fmt::format("nearest: {}", fmt::join(NearestNames(name, kSaveNames, 3), ", ")));
    }
  }
  return RematPolicy{"custom", false, {kept.begin(), kept.end()}};
}

std::vector<std::string> RematPolicyNames() {
  std::vector<std::string> names = {"none"};
  for (const Named& policy : Policies()) names.emplace_back(policy.name);
  names.emplace_back("custom");
  return names;
}

}  // namespace octavo::ops
