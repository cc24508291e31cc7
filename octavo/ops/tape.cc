#include "octavo/ops/tape.h"

#include <algorithm>
#include <utility>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/ops/add.h"
#include "octavo/ops/context.h"
#include "octavo/ops/profile.h"

namespace octavo::ops {

Var Tape::Leaf(Tensor value) {
  nodes_.emplace_back();
  return Var(std::move(value), static_cast<NodeId>(nodes_.size() - 1));
}

Var Tape::Leaf(const Parameter& parameter) {
  if (const auto at = leaves_.find(&parameter); at != leaves_.end()) return at->second;
  if (parameter.frozen()) ThrowUsage("parameter {} is frozen: it has no gradient", parameter.name);
  OCTAVO_CHECK(replays_ == 0);  // the forward pass has made the leaves of all parameters
  const Var leaf = Leaf(parameter.tensor());
  nodes_.back().parameter = &parameter;
  leaves_.emplace(&parameter, leaf);
  order_.push_back(&parameter);
  return leaf;
}

Var Tape::Record(Tensor output, std::span<const NodeId> inputs, Backward backward) {
  if (std::all_of(inputs.begin(), inputs.end(), [](NodeId node) { return node == kConstant; })) {
    return Var(std::move(output));
  }
  if (paused_ > 0) return Var(std::move(output), kUnrecorded);
  if (replays_ > 0) ++replayed_;
  Node& node = nodes_.emplace_back();
  node.inputs.assign(inputs.begin(), inputs.end());
  node.backward = std::move(backward);
  return Var(std::move(output), static_cast<NodeId>(nodes_.size() - 1));
}

void Tape::Charge(const Var& output, std::string site, double macs) {
  if (output.node < 0) return;
  nodes_[static_cast<size_t>(output.node)].site = std::move(site);
  nodes_[static_cast<size_t>(output.node)].macs = macs;
}

void Tape::Accumulate(Context& context, NodeId node, const Tensor& grad) {
  Tensor& sum = nodes_[static_cast<size_t>(node)].grad;
  if (!sum.defined()) {
    sum = grad;
    return;
  }
  const Timed timed(context.profile, "gradients that meet", "elementwise", "backward");
  sum = AddTensors(context, sum, grad);
}

void Tape::Run(Context& context, const Var& output, const Tensor& seed) {
  if (output.node == kConstant) ThrowUsage("Tape::Run: the output does not depend on anything on the tape");
  if (seed.shape() != output.shape()) {
    ThrowUsage("Tape::Run: the output is {}, its gradient {}", output.shape(), seed.shape());
  }
  Accumulate(context, output.node, seed);
  Walk(context, static_cast<size_t>(output.node) + 1, 0);
}

void Tape::Walk(Context& context, size_t from, size_t to) {
  for (size_t i = from; i-- > to;) {
    const Backward backward = std::exchange(nodes_[i].backward, nullptr);
    if (!nodes_[i].grad.defined()) continue;
    // Every use of a leaf is newer than the leaf, so here its gradient is complete.
    if (nodes_[i].parameter != nullptr && on_gradient_) {
      on_gradient_(*nodes_[i].parameter, std::exchange(nodes_[i].grad, Tensor()));
    }
    if (!backward) continue;
    const std::vector<NodeId> inputs = std::exchange(nodes_[i].inputs, {});
    Tensor grad = std::exchange(nodes_[i].grad, Tensor());
    const std::string site = std::exchange(nodes_[i].site, {});
    const double macs = nodes_[i].macs;
    std::vector<Tensor> grads;
    {
      const Timed timed(site.empty() ? nullptr : context.profile, site, "matmul", "backward", macs);
      grads = backward(context, grad);
    }
    grad = Tensor();
    OCTAVO_CHECK(grads.size() == inputs.size());
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (inputs[j] != kConstant && grads[j].defined()) Accumulate(context, inputs[j], grads[j]);
    }
  }
}

size_t Tape::StartReplay() {
  ++replays_;
  return nodes_.size();
}

void Tape::FinishReplay(Context& context, size_t mark, std::vector<std::pair<Var, Tensor>> seeds) {
  --replays_;
  for (auto& [output, grad] : seeds) {
    // A layer that hands its input on has no node of its own; the gradient goes straight to the input.
    if (output.node >= 0) Accumulate(context, output.node, grad);
  }
  seeds.clear();
  Walk(context, nodes_.size(), mark);
  nodes_.resize(mark);
}

Tensor Tape::Grad(const Var& leaf) const {
  return leaf.node == kConstant ? Tensor() : nodes_[static_cast<size_t>(leaf.node)].grad;
}

Tensor Tape::Grad(const Parameter& parameter) const {
  const auto at = leaves_.find(&parameter);
  return at == leaves_.end() ? Tensor() : Grad(at->second);
}

}  // namespace octavo::ops
