// The sum of the gradients of all canonical shards, always by the same binary tree over the shard's index:
// ((0 + 1) + (2 + 3)) + … Shards may run one after the other, in several accumulation steps or on several ranks; the
// additions are the same ones, so the bits are too. At most log2(shards) sets of gradients are alive, and the one that
// comes in: what can be added is added parameter by parameter, while the backward pass is still running. Used by the
// trainer, once per step; it knows names and masks of parameters as little as their meaning.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/dist/communicator.h"
#include "octavo/kernels/isa.h"
#include "octavo/optim/clipping.h"
#include "octavo/tensor/tensor.h"

namespace octavo::optim {

// One gradient per parameter, f32; an undefined tensor is a gradient of zero.
using Gradients = std::vector<Tensor>;

class GradientTree {
 public:
  GradientTree(ThreadPool& pool, kernels::Isa isa, int64_t shards) : pool_(pool), isa_(isa), shards_(shards) {}

  // Shards come in ascending order. Takes the tensors: a contiguous one that nothing else shares is summed in place.
  void Add(int64_t shard, Gradients gradients);

  // The same in pieces: parameters come in any order, each at most once; one that does not come has a gradient of zero.
  void Begin(int64_t shard, size_t parameters);
  // When this makes the whole sum of the parameter known, its squares go to `norm`, in the same pass over memory.
  void Give(size_t parameter, Tensor gradient, NormOfParts* norm = nullptr);
  void End();
  // Of one parameter, after the last shard gave it: the whole sum on this rank, undefined before that.
  Tensor Complete(size_t parameter) const;

  // The whole sum. Rank r of n must have added the shards [r * shards / n, (r + 1) * shards / n).
  Gradients Finish(Communicator& communicator);

 private:
  // The sum over shards [begin, begin + 2^level).
  struct Node {
    int64_t begin;
    int level;
    Gradients gradients;
  };

  static bool Joins(const Node& left, const Node& right);
  void JoinOne(Tensor& into, Tensor from) const;
  bool JoinAll(size_t parameter, const Tensor& gradient, NormOfParts* norm);
  bool Completes() const;
  Tensor Own(Tensor gradient);
  void Push(std::vector<Node>& nodes, Node node) const;
  void Join(Gradients& into, Gradients from) const;
  Gradients Collapse(std::vector<Node>& nodes) const;
  Gradients Exchange(Communicator& communicator);

  ThreadPool& pool_;
  kernels::Isa isa_;
  int64_t shards_;
  std::vector<Node> nodes_;

  // The shard that comes in.
  Node coming_{0, 0, {}};
  size_t joins_ = 0;  // nodes at the end of nodes_ that it will be one with
  std::vector<bool> given_;
  std::set<const void*> kept_;  // storage of its gradients
};

}  // namespace octavo::optim
