// What the server counts, as Prometheus reads it. Names follow vLLM, so that its dashboards work after a change of
// prefix; with the prefix "jetstream_" JetStream's own names are used. Every method may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/engine/service.h"

namespace octavo::server {

// Counts of values up to each bound, and their sum.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Add(double value);
  // `labels` as name="value", or nothing.
  void Render(std::string_view name, std::string_view help, std::string_view labels, std::string& out) const;

 private:
  std::span<const double> bounds_;
  std::vector<int64_t> counts_;  // one more for what is above every bound
  double sum_ = 0;
};

class Metrics {
 public:
  Metrics();

  // A request that ran to its end; `reason` stop, length, tool_calls, cancelled, error.
  void Finished(std::string_view reason, const engine::Usage& usage, double seconds);
  void Rejected(std::string_view reason);  // queue_full, draining, invalid
  void TokenGap(double seconds);           // between two events of one stream
  void FirstToken(double seconds);
  // From the start of the server to its first answer. Before anything else is counted.
  void set_startup_seconds(double seconds) { startup_seconds_ = seconds; }

  // Every series carries the label model_name, as boards made for vLLM ask for it; JetStream's have none.
  std::string Render(std::string_view prefix, std::string_view model, const engine::ServiceStats& stats,
                     int64_t connections) const;

 private:
  std::string RenderJetStream(const engine::ServiceStats& stats) const;

  mutable std::mutex mutex_;
  // Series that are there from the start: a rate over one that appears with its first count misses that count.
  std::map<std::string, int64_t, std::less<>> finished_ = {
      {"stop", 0}, {"length", 0}, {"tool_calls", 0}, {"cancelled", 0}, {"error", 0}};
  std::map<std::string, int64_t, std::less<>> rejected_ = {{"queue_full", 0}, {"draining", 0}, {"invalid", 0}};
  Histogram first_token_, token_gap_, whole_, queue_, prefill_, prefill_token_, decode_, prompt_tokens_,
      generated_tokens_;
  double startup_seconds_ = 0;
};

}  // namespace octavo::server
