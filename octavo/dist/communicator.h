// Ranks that work on one job, and what they may say to each other. The trainer sums gradients and merges state through
// it. There is no float sum on purpose: the order of a float sum is a policy, and belongs to whoever gathers the terms
// (optim/gradient_tree.h). Max, integer sums and gathered bytes are the same in any order. Every call is collective:
// all ranks make the same calls in the same order with the same sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when every rank has called it.
  virtual void Barrier() = 0;
  // The bytes of `root`, on every rank.
  virtual void Broadcast(std::span<std::byte> bytes, int root) = 0;
  // all = the `mine` of rank 0, of rank 1, …; all.size() == size() * mine.size().
  virtual void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  // Elementwise over ranks. NaN wins; of two zeros the positive one does.
  virtual void AllReduceMax(std::span<float> values) = 0;
  // Elementwise over ranks, modulo 2^64.
  virtual void AllReduceSum(std::span<int64_t> values) = 0;
};

// The only rank of a job: every call is a no-op, or a copy.
class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Barrier() override {}
  void Broadcast(std::span<std::byte> bytes, int root) override;
  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void AllReduceMax(std::span<float>) override {}
  void AllReduceSum(std::span<int64_t>) override {}
};

}  // namespace octavo
