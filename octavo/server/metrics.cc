#include "octavo/server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::server {
namespace {

constexpr double kSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                               1,     2.5,    5,     10,   25,    50,   100, 250};
constexpr double kGaps[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5};
constexpr double kTokens[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

void Value(std::string& out, std::string_view name, std::string_view type, std::string_view help, double value,
           std::string_view labels = {}) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  out += labels.empty() ? fmt::format("{} {}\n", name, value) : fmt::format("{}{{{}}} {}\n", name, labels, value);
}

// As Prometheus quotes the value of a label.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + '"';
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

void Histogram::Add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(at)];
  sum_ += value;
}

void Histogram::Render(std::string_view name, std::string_view help, std::string_view labels, std::string& out) const {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, labels.empty() ? "" : ",", bound, total);
  }
  const std::string all = labels.empty() ? std::string() : fmt::format("{{{}}}", labels);
  out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, all, sum_, total);
}

Metrics::Metrics()
    : first_token_(kSeconds),
      token_gap_(kGaps),
      whole_(kSeconds),
      queue_(kSeconds),
      prefill_(kSeconds),
      prefill_token_(kGaps),
      decode_(kSeconds),
      prompt_tokens_(kTokens),
      generated_tokens_(kTokens) {}

void Metrics::Finished(std::string_view reason, const engine::Usage& usage, double seconds) {
  const std::lock_guard lock(mutex_);
  ++finished_[std::string(reason)];
  whole_.Add(seconds);
  queue_.Add(usage.queue_seconds);
  prefill_.Add(usage.prefill_seconds);
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  if (computed > 0) prefill_token_.Add(usage.prefill_seconds / static_cast<double>(computed));
  decode_.Add(usage.decode_seconds);
  prompt_tokens_.Add(static_cast<double>(usage.prompt_tokens));
  generated_tokens_.Add(static_cast<double>(usage.completion_tokens));
}

void Metrics::Rejected(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++rejected_[std::string(reason)];
}

void Metrics::TokenGap(double seconds) {
  const std::lock_guard lock(mutex_);
  token_gap_.Add(seconds);
}

void Metrics::FirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}

std::string Metrics::Render(std::string_view prefix, std::string_view model, const engine::ServiceStats& stats,
                            int64_t connections) const {
  if (prefix == "jetstream_") return RenderJetStream(stats);
  const std::string labels = "model_name=" + Quoted(model);
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    Value(out, fmt::format("{}{}", prefix, name), "gauge", help, value, labels);
  };
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    Value(out, fmt::format("{}{}", prefix, name), "counter", help, static_cast<double>(value), labels);
  };
  const auto labelled = [&](std::string_view name, std::string_view help, std::string_view label, const auto& values) {
    out += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} counter\n", prefix, name, help);
    for (const auto& entry : values) {
      out += fmt::format("{}{}{{{},{}=\"{}\"}} {}\n", prefix, name, labels, label, entry.first, entry.second);
    }
  };
  const auto histogram = [&](std::string_view name, std::string_view help, const Histogram& values) {
    values.Render(fmt::format("{}{}", prefix, name), help, labels, out);
  };
  gauge("num_requests_running", "Requests in slots.", static_cast<double>(stats.running));
  gauge("num_requests_waiting", "Requests that wait for a slot.", static_cast<double>(stats.waiting));
  gauge("kv_cache_usage_perc", "Share of the pages of the cache in use, 0 to 1.",
        Share(stats.kv_pages_used, stats.kv_pages));
  gauge("connections", "Open connections.", static_cast<double>(connections));
  gauge("server_startup_seconds", "From the start to the first request that could be answered.", startup_seconds_);
  counter("prompt_tokens_total", "Prompt tokens.", stats.prompt_tokens);
  counter("generation_tokens_total", "Generated tokens.", stats.generated_tokens);
  counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prefix_queries);
  counter("prefix_cache_hits_total", "Prompt tokens found there.", stats.prefix_hits);
  counter("num_preemptions_total", "Requests that were put back to make room.", stats.preemptions);
  labelled("request_success_total", "Requests that ended.", "finished_reason", finished_);
  labelled("request_rejected_total", "Requests that were not taken.", "reason", rejected_);
  histogram("time_to_first_token_seconds", "From the request to its first token.", first_token_);
  histogram("inter_token_latency_seconds", "Between tokens of one request.", token_gap_);
  histogram("e2e_request_latency_seconds", "From the request to its end.", whole_);
  histogram("request_queue_time_seconds", "Waiting for a slot.", queue_);
  histogram("request_prefill_time_seconds", "Running the prompt.", prefill_);
  histogram("request_decode_time_seconds", "Generating.", decode_);
  histogram("request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens_);
  histogram("request_generation_tokens", "Generated tokens of a request.", generated_tokens_);
  return out;
}

// JetStream's own names, all of them; it has no counterpart for our others.
std::string Metrics::RenderJetStream(const engine::ServiceStats& stats) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  Value(out, "jetstream_prefill_backlog_size", "gauge", "Requests that wait for a slot.",
        static_cast<double>(stats.waiting));
  // Its prefills and decodes may run on different machines; ours share one cache, so that nothing is ever under way.
  Value(out, "jetstream_transfer_backlog_size", "gauge", "Requests between prefill and decode.", 0);
  Value(out, "jetstream_generate_backlog_size", "gauge", "Requests in slots.", static_cast<double>(stats.running));
  Value(out, "jetstream_slots_used_percentage", "gauge", "Share of the slots in use, 0 to 1.",
        Share(stats.running, stats.slots));
  Value(out, "jetstream_server_startup_latency", "gauge", "Seconds from the start to readiness.", startup_seconds_);
  int64_t finished = 0;
  for (const auto& entry : finished_) finished += entry.second;
  Value(out, "jetstream_request_success_count", "counter", "Requests that ended.", static_cast<double>(finished));
  first_token_.Render("jetstream_time_to_first_token", "From the request to its first token, seconds.", {}, out);
  token_gap_.Render("jetstream_time_per_output_token", "Between tokens of one request, seconds.", {}, out);
  prefill_token_.Render("jetstream_time_per_prefill_token", "Running the prompt, seconds per token.", {}, out);
  queue_.Render("jetstream_queue_duration", "Waiting for a slot, seconds.", {}, out);
  queue_.Render("jetstream_wait_time_per_request", "Waiting for a slot, seconds.", {}, out);
  whole_.Render("jetstream_time_per_request", "From the request to its end, seconds.", {}, out);
  prompt_tokens_.Render("jetstream_request_input_length", "Prompt tokens of a request.", {}, out);
  generated_tokens_.Render("jetstream_request_output_length", "Generated tokens of a request.", {}, out);
  return out;
}

}  // namespace octavo::server
