// The record of one forward pass, and the walk back over it. Ops record a node with a function that turns the gradient
// of their output into the gradients of their inputs; forward and backward of an op stand in one place. One tape per
// pass: made by the trainer, given through the Context, thrown away after the step. It knows no op and no parameter
// update.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct Context;

class Tape {
 public:
  // From the output's gradient to the inputs' gradients, in the order given to Record. An undefined tensor is no
  // gradient.
  using Backward = std::function<std::vector<Tensor>(Context&, const Tensor& grad)>;

  // A tensor to differentiate by. A parameter gets one leaf per tape, however often it is used.
  Var Leaf(Tensor value);
  Var Leaf(const Parameter& parameter);

  // The output of an op. When no input is on the tape the result is a constant and `backward` is dropped.
  Var Record(Tensor output, std::span<const NodeId> inputs, Backward backward);
  Var Record(Tensor output, std::initializer_list<NodeId> inputs, Backward backward) {
    return Record(std::move(output), std::span<const NodeId>(inputs.begin(), inputs.size()), std::move(backward));
  }

  // Profiles charge the backward function of this op to a site. For ops whose gradients do not time themselves.
  void Charge(const Var& output, std::string site, double macs);

  // Hands out the gradient of every parameter as soon as it is complete, during Run, and keeps none of them: whoever
  // adds them up need not hold two sets. Parameters that nothing reached are not mentioned.
  using OnGradient = std::function<void(const Parameter&, Tensor)>;
  void HandOut(OnGradient on_gradient) { on_gradient_ = std::move(on_gradient); }

  // Walks back from `output`, whose gradient is `seed`. Gradients that meet at a node are added in the order of the
  // walk, newest op first, which is fixed by the model. Frees each op's residuals as it passes. Call once.
  void Run(Context& context, const Var& output, const Tensor& seed);

  // The gradient of a leaf; undefined when nothing reached it, or when it was handed out.
  Tensor Grad(const Var& leaf) const;
  Tensor Grad(const Parameter& parameter) const;

  // ---- for remat (ops/remat.h) ----
  // While one lives, ops run without leaving nodes: parameters still get their leaves, outputs that would have had a
  // gradient carry kUnrecorded.
  class Pause {
   public:
    explicit Pause(Tape& tape) : tape_(tape) { ++tape_.paused_; }
    ~Pause() { --tape_.paused_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Tape& tape_;
  };
  // Inside a backward function: nodes recorded from here on are walked and dropped by FinishReplay, which starts from
  // the given gradients. They may use any node older than the function's own.
  size_t StartReplay();
  void FinishReplay(Context& context, size_t mark, std::vector<std::pair<Var, Tensor>> seeds);
  void CountSkipped() { ++skipped_; }
  int64_t replayed_ops() const { return replayed_ - skipped_; }  // computed a second time
  int64_t skipped_ops() const { return skipped_; }               // recorded again without running

  // Parameters that were used, in the order of first use.
  std::span<const Parameter* const> parameters() const { return order_; }

 private:
  struct Node {
    std::vector<NodeId> inputs;
    Backward backward;  // empty for a leaf
    Tensor grad;
    std::string site;  // charged in profiles; empty: times itself
    double macs = 0;
    const Parameter* parameter = nullptr;  // of a parameter's leaf
  };

  void Accumulate(Context& context, NodeId node, const Tensor& grad);
  void Walk(Context& context, size_t from, size_t to);  // nodes from - 1 down to `to`

  int paused_ = 0, replays_ = 0;
  int64_t replayed_ = 0, skipped_ = 0;
  std::vector<Node> nodes_;
  std::map<const Parameter*, Var> leaves_;
  std::vector<const Parameter*> order_;
  OnGradient on_gradient_;
};

}  // namespace octavo::ops
