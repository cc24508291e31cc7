#include "octavo/dist/thread_ranks.h"

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

// Thrown in ranks that waited for one that failed; never leaves RunThreadRanks.
struct Abandoned {};

// What the ranks share: a barrier, and where each rank's data of the current call lies.
class Group {
 public:
  explicit Group(int size) : size_(size), pieces_(static_cast<size_t>(size)) {}

  int size() const { return size_; }

  void Barrier() {
    std::unique_lock lock(mutex_);
    if (aborted_) throw Abandoned();
    const uint64_t round = round_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || aborted_; });
    if (round_ == round) throw Abandoned();
  }

  void Abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  // Shows `mine` to all, calls read(), and waits until all have read.
  template <typename Read>
  void Exchange(int rank, std::span<const std::byte> mine, Read&& read) {
    pieces_[static_cast<size_t>(rank)] = mine;
    Barrier();
    for (const std::span<const std::byte> piece : pieces_) OCTAVO_CHECK(piece.size() == mine.size());
    read();
    Barrier();
  }

  std::span<const std::byte> piece(int rank) const { return pieces_[static_cast<size_t>(rank)]; }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  uint64_t round_ = 0;
  bool aborted_ = false;
  std::vector<std::span<const std::byte>> pieces_;
};

float Larger(float a, float b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Group& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  void Barrier() override { group_.Barrier(); }

  void Broadcast(std::span<std::byte> bytes, int root) override {
    OCTAVO_CHECK(root >= 0 && root < size());
    group_.Exchange(rank_, bytes, [&] {
      if (rank_ != root && !bytes.empty()) std::memcpy(bytes.data(), group_.piece(root).data(), bytes.size());
    });
  }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    OCTAVO_CHECK(all.size() == mine.size() * static_cast<size_t>(size()));
    group_.Exchange(rank_, mine, [&] {
      if (mine.empty()) return;
      for (int r = 0; r < size(); ++r) {
        std::memcpy(all.data() + static_cast<size_t>(r) * mine.size(), group_.piece(r).data(), mine.size());
      }
    });
  }

  void AllReduceMax(std::span<float> values) override { Reduce(values, Larger); }

  void AllReduceSum(std::span<int64_t> values) override {
    Reduce(values, [](int64_t a, int64_t b) {
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    });
  }

 private:
  template <typename T, typename Join>
  void Reduce(std::span<T> values, Join&& join) {
    std::vector<T> all(values.size() * static_cast<size_t>(size()));
    AllGather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    for (size_t i = 0; i < values.size(); ++i) {
      T result = all[i];
      for (size_t r = 1; r < static_cast<size_t>(size()); ++r) result = join(result, all[r * values.size() + i]);
      values[i] = result;
    }
  }

  Group& group_;
  int rank_;
};

}  // namespace

void RunThreadRanks(int ranks, FunctionRef<void(Communicator&)> work) {
  if (ranks < 1) ThrowUsage("a job needs at least one rank, found {}", ranks);
  Group group(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  const auto run = [&](int rank) {
    try {
      ThreadCommunicator communicator(group, rank);
      work(communicator);
    } catch (const Abandoned&) {  // the rank that failed has the reason
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      group.Abort();
    }
  };
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  threads.clear();  // joins
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace octavo
