#include "octavo/optim/gradient_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/kernels/elementwise.h"
#include "octavo/kernels/joined_sums.h"

namespace octavo::optim {
namespace {

// The nodes that the shards [begin, end) become without their neighbours, as (begin, level).
std::vector<std::pair<int64_t, int>> NodesOf(int64_t begin, int64_t end) {
  std::vector<std::pair<int64_t, int>> nodes;
  while (begin < end) {
    int level = 0;
    while (begin % (int64_t{2} << level) == 0 && begin + (int64_t{2} << level) <= end) ++level;
    nodes.emplace_back(begin, level);
    begin += int64_t{1} << level;
  }
  return nodes;
}

}  // namespace

bool GradientTree::Joins(const Node& left, const Node& right) {
  return left.level == right.level && left.begin % (int64_t{2} << left.level) == 0;
}

void GradientTree::Add(int64_t shard, Gradients gradients) {
  Begin(shard, gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) Give(i, std::move(gradients[i]));
  }
  End();
}

void GradientTree::Begin(int64_t shard, size_t parameters) {
  OCTAVO_CHECK(shard >= 0 && shard < shards_);
  if (!nodes_.empty()) {
    const Node& last = nodes_.back();
    OCTAVO_CHECK(shard == last.begin + (int64_t{1} << last.level));
    OCTAVO_CHECK(parameters == last.gradients.size());
  }
  coming_ = Node{shard, 0, Gradients(parameters)};
  given_.assign(parameters, false);
  kept_.clear();
  joins_ = 0;
  // What Push would do, without the gradients.
  Node joined{shard, 0, {}};
  while (joins_ < nodes_.size() && Joins(nodes_[nodes_.size() - 1 - joins_], joined)) {
    joined.begin = nodes_[nodes_.size() - 1 - joins_].begin;
    ++joined.level;
    ++joins_;
  }
}

void GradientTree::Give(size_t parameter, Tensor gradient, NormOfParts* norm) {
  OCTAVO_CHECK(!given_[parameter]);
  given_[parameter] = true;
  if (gradient.defined() && gradient.dtype() != DType::kF32) {
    ThrowUsage("gradient {}: sums of gradients are f32", gradient.ToString());
  }
  if (joins_ == 0) {
    coming_.gradients[parameter] = Own(std::move(gradient));
    return;
  }
  if (gradient.defined() && JoinAll(parameter, gradient.Contiguous(), norm)) return;
  Tensor sum = nodes_.back().gradients[parameter].defined() && gradient.defined() ? gradient.Contiguous()
                                                                                  : Own(std::move(gradient));
  gradient = Tensor();
  for (size_t i = 0; i < joins_; ++i) {
    Tensor& left = nodes_[nodes_.size() - 1 - i].gradients[parameter];
    JoinOne(left, std::move(sum));
    sum = i + 1 < joins_ ? std::exchange(left, Tensor()) : Tensor();
  }
}

// The usual case, in one pass: every node that the shard joins has this gradient.
bool GradientTree::JoinAll(size_t parameter, const Tensor& gradient, NormOfParts* norm) {
  std::vector<float*> left;
  for (size_t i = 0; i < joins_; ++i) {
    Tensor& one = nodes_[nodes_.size() - 1 - i].gradients[parameter];
    if (!one.defined()) return false;
    OCTAVO_CHECK(one.shape() == gradient.shape());
    left.push_back(one.MutableData<float>());
  }
  double* const squares = norm != nullptr && Completes() ? norm->Slot(parameter, gradient.size()) : nullptr;
  kernels::JoinSums(pool_, isa_,
                    {.count = gradient.size(), .term = gradient.Data<float>(), .left = left, .squares = squares});
  for (size_t i = 0; i + 1 < joins_; ++i) nodes_[nodes_.size() - 1 - i].gradients[parameter] = Tensor();
  return true;
}

// As it is when it may be added to in place: packed, writable, and not another's storage.
Tensor GradientTree::Own(Tensor gradient) {
  if (!gradient.defined()) return gradient;
  const bool own = gradient.is_contiguous() && gradient.writable() && kept_.insert(gradient.RawData()).second;
  return own ? gradient : gradient.Clone();
}

// Whether the shard that comes in is the last part of the whole sum.
bool GradientTree::Completes() const {
  // A rank that begins later has its own part of the sum only.
  const int64_t begin = nodes_.empty() ? coming_.begin : nodes_.front().begin;
  return coming_.begin + 1 == shards_ && joins_ == nodes_.size() && begin == 0;
}

Tensor GradientTree::Complete(size_t parameter) const {
  if (!Completes() || parameter >= given_.size() || !given_[parameter]) return Tensor();
  return joins_ == 0 ? coming_.gradients[parameter] : nodes_.front().gradients[parameter];
}

void GradientTree::End() {
  for (size_t i = 0; i < given_.size(); ++i) {
    if (!given_[i]) Give(i, Tensor());
  }
  if (joins_ == 0) {
    nodes_.push_back(std::move(coming_));
    return;
  }
  nodes_.resize(nodes_.size() - (joins_ - 1), Node{0, 0, {}});
  ++nodes_.back().level;  // the others have become one that is as large
}

void GradientTree::Push(std::vector<Node>& nodes, Node node) const {
  nodes.push_back(std::move(node));
  while (nodes.size() >= 2 && Joins(nodes[nodes.size() - 2], nodes.back())) {
    Node right = std::move(nodes.back());
    nodes.pop_back();
    Join(nodes.back().gradients, std::move(right.gradients));
    ++nodes.back().level;
  }
}

void GradientTree::JoinOne(Tensor& into, Tensor from) const {
  if (!from.defined()) return;
  if (!into.defined()) {
    into = std::move(from);
    return;
  }
  OCTAVO_CHECK(into.shape() == from.shape());
  float* sum = into.MutableData<float>();
  const float* term = from.Data<float>();
  kernels::Elementwise(pool_, isa_,
                       {.op = kernels::ElementwiseOp::kAdd,
                        .a = kernels::RowsOf(static_cast<const float*>(sum), 1, into.size()),
                        .b = kernels::RowsOf(term, 1, into.size()),
                        .out = kernels::RowsOf(sum, 1, into.size())});
}

void GradientTree::Join(Gradients& into, Gradients from) const {
  // One after the other: memory is given back before the next parameter.
  for (size_t i = 0; i < into.size(); ++i) JoinOne(into[i], std::exchange(from[i], Tensor()));
}

Gradients GradientTree::Collapse(std::vector<Node>& nodes) const {
  OCTAVO_CHECK(!nodes.empty());
  while (nodes.size() > 1) {
    Node right = std::move(nodes.back());
    nodes.pop_back();
    Join(nodes.back().gradients, std::move(right.gradients));
  }
  Gradients sum = std::move(nodes[0].gradients);
  nodes.clear();
  return sum;
}

Gradients GradientTree::Finish(Communicator& communicator) {
  const int ranks = communicator.size();
  OCTAVO_CHECK(shards_ % ranks == 0);
  const int64_t run = shards_ / ranks, begin = communicator.rank() * run;
  OCTAVO_CHECK(!nodes_.empty() && nodes_.front().begin == begin);
  OCTAVO_CHECK(nodes_.back().begin + (int64_t{1} << nodes_.back().level) == begin + run);
  return ranks == 1 ? Collapse(nodes_) : Exchange(communicator);
}

// Every rank gathers the nodes of all, one parameter at a time, and finishes the tree on its own.
Gradients GradientTree::Exchange(Communicator& communicator) {
  const auto ranks = static_cast<size_t>(communicator.size());
  const int64_t run = shards_ / communicator.size();
  std::vector<std::vector<std::pair<int64_t, int>>> layout(ranks);
  size_t most = 0;
  for (size_t r = 0; r < ranks; ++r) {
    layout[r] = NodesOf(static_cast<int64_t>(r) * run, static_cast<int64_t>(r + 1) * run);
    most = std::max(most, layout[r].size());
  }
  const size_t count = nodes_[0].gradients.size();
  Gradients sum(count);
  for (size_t p = 0; p < count; ++p) {
    // Which nodes have this gradient, and its shape: a rank whose shards never used it still takes part.
    std::vector<int64_t> mine(most + 1 + Shape::kMaxRank, 0);
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Tensor& gradient = nodes_[n].gradients[p];
      if (!gradient.defined()) continue;
      mine[n] = 1;
      mine[most] = gradient.rank() + 1;
      for (int a = 0; a < gradient.rank(); ++a) mine[most + 1 + static_cast<size_t>(a)] = gradient.dim(a);
    }
    std::vector<int64_t> facts(mine.size() * ranks);
    communicator.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(facts)));
    Shape shape;
    bool used = false;
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t* fact = facts.data() + r * mine.size();
      if (fact[most] == 0) continue;
      used = true;
      shape = Shape(std::span<const int64_t>(fact + most + 1, static_cast<size_t>(fact[most] - 1)));
    }
    if (!used) continue;
    std::vector<Node> nodes;
    const auto bytes = static_cast<size_t>(shape.size()) * sizeof(float);
    std::vector<std::vector<Tensor>> parts(ranks, std::vector<Tensor>(most));
    for (size_t n = 0; n < most; ++n) {
      std::vector<std::byte> own(bytes), all(bytes * ranks);
      if (n < nodes_.size() && mine[n] == 1) std::memcpy(own.data(), nodes_[n].gradients[p].RawData(), bytes);
      communicator.AllGather(own, all);
      for (size_t r = 0; r < ranks; ++r) {
        if (facts[r * mine.size() + n] == 0) continue;
        parts[r][n] = Tensor::Empty(shape, DType::kF32);
        std::memcpy(parts[r][n].MutableRawData(), all.data() + r * bytes, bytes);
      }
    }
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t n = 0; n < layout[r].size(); ++n) {
        Push(nodes, Node{layout[r][n].first, layout[r][n].second, {std::move(parts[r][n])}});
      }
    }
    sum[p] = std::move(Collapse(nodes)[0]);
    for (Node& node : nodes_) node.gradients[p] = Tensor();
  }
  nodes_.clear();
  return sum;
}

}  // namespace octavo::optim
