// Requests that wait: first come, first served for each client, and clients take turns, so that one with a thousand
// requests does not keep the others waiting. Used by the scheduler under its lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "octavo/engine/job.h"

namespace octavo::engine {

class FairQueue {
 public:
  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }

  void Push(std::unique_ptr<Job> job);                           // a client is a cache_scope
  Job& Front() { return *clients_.at(turns_.front()).front(); }  // who is next
  std::unique_ptr<Job> Pop();
  // Takes one out, wherever it stands; null when it is not here.
  std::unique_ptr<Job> Remove(RequestId id);
  std::vector<std::unique_ptr<Job>> RemoveAll();

 private:
  std::deque<std::string> turns_;  // clients that wait, the next one first
  std::unordered_map<std::string, std::deque<std::unique_ptr<Job>>> clients_;
  int64_t size_ = 0;
};

}  // namespace octavo::engine
