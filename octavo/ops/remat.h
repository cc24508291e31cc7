// Which activations of a layer are kept for the backward pass and which are computed again. A policy is a set of save
// names; ops carry a save name (ops/dot.h, ops/attention.h). A layer runs through Checkpoint: its input and the named
// outputs are kept, everything else is dropped and the layer is replayed when the backward pass reaches it. On replay
// an op whose output was kept records its node without running. Gradients and state have the same bits under every
// policy: the replay records on the same tape, draws the same noise, and has no sink for observations.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct RematPolicy {
  std::string name;             // as given by the user
  bool everything = false;      // "none": nothing is computed again
  std::set<std::string> saved;  // outputs kept besides the input of the layer

  bool Saves(std::string_view save_name) const { return everything || saved.contains(std::string(save_name)); }
};

// none full minimal minimal_with_context minimal_flash minimal_with_quantization minimal_with_context_and_quantization
// save_dot_with_context_except_mlp save_dot_except_mlpwi save_dot_except_mlp save_qkv_proj save_out_proj
// qkv_proj_offloaded minimal_offloaded. Offloading means keeping: memory is the host's already.
std::optional<RematPolicy> RematPolicyByName(std::string_view name);
// remat_policy=custom: the names whose value is "device" or "offload". An unknown name is a usage error.
RematPolicy CustomRematPolicy(std::span<const std::string> kept);
std::vector<std::string> RematPolicyNames();
std::span<const std::string_view> SaveNames();

// What a layer kept on the way forward, in the order of its ops; read in the same order on replay.
struct RematFrame {
  const RematPolicy* policy = nullptr;
  bool replaying = false;
  std::vector<std::vector<Tensor>> kept;
  size_t next = 0;
};

// For ops with a save name. On replay, what was kept under the name, or nothing: then the op runs. In the forward pass
// Keep stores the outputs if the policy says so.
std::vector<Tensor> Recall(Context& context, std::string_view save_name);
void Keep(Context& context, std::string_view save_name, std::vector<Tensor> outputs);

// Runs `layer` on x under the context's policy and records it as one op that is replayed in the backward pass. Without
// a tape, without a policy, or under "none", simply runs it. `layer` is kept by the tape: it owns what it needs.
Var Checkpoint(Context& context, const Var& x, std::function<Var(Context&, const Var&)> layer);

}  // namespace octavo::ops
