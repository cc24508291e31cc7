#include "octavo/engine/fair_queue.h"

#include <algorithm>
#include <utility>

namespace octavo::engine {

void FairQueue::Push(std::unique_ptr<Job> job) {
  const std::string& client = job->request.cache_scope;
  auto& jobs = clients_[client];
  if (jobs.empty()) turns_.push_back(client);
  jobs.push_back(std::move(job));
  ++size_;
}

std::unique_ptr<Job> FairQueue::Pop() {
  const std::string client = std::move(turns_.front());
  turns_.pop_front();
  const auto at = clients_.find(client);
  std::unique_ptr<Job> job = std::move(at->second.front());
  at->second.pop_front();
  --size_;
  if (at->second.empty()) {
    clients_.erase(at);
  } else {
    turns_.push_back(client);
  }
  return job;
}

std::unique_ptr<Job> FairQueue::Remove(RequestId id) {
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    auto& jobs = client->second;
    const auto at = std::ranges::find_if(jobs, [&](const auto& job) { return job->id == id; });
    if (at == jobs.end()) continue;
    std::unique_ptr<Job> job = std::move(*at);
    jobs.erase(at);
    --size_;
    if (jobs.empty()) {
      std::erase(turns_, client->first);
      clients_.erase(client);
    }
    return job;
  }
  return nullptr;
}

std::vector<std::unique_ptr<Job>> FairQueue::RemoveAll() {
  std::vector<std::unique_ptr<Job>> all;
  while (!empty()) all.push_back(Pop());
  return all;
}

}  // namespace octavo::engine
