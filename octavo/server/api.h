// The routes of `octavo serve`: OpenAI's API and what stands beside it. Puts requests, generations and metrics
// together; owns no socket. docs/howto/serve.md lists every route and field.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "octavo/engine/service.h"
#include "octavo/server/adapter_calls.h"
#include "octavo/server/api_options.h"
#include "octavo/server/fields.h"
#include "octavo/server/http.h"
#include "octavo/server/json_writer.h"
#include "octavo/server/metrics.h"
#include "octavo/server/model_context.h"
#include "octavo/server/router.h"

namespace octavo::server {

class Api {
 public:
  // The service must outlive the API, the API the router. Throws the TemplateError of a chat template that is not
  // understood, and a usage Error for a folder of adapters that is none.
  Api(engine::Service& service, ApiOptions options);

  void AddRoutes(Router& router);
  // From now on /health says so and new requests get 503.
  void BeginDrain() { draining_ = true; }
  // For /metrics: the number of open connections, and how long it took until the first request could be answered.
  void set_connections(std::function<int64_t()> connections) { connections_ = std::move(connections); }
  void set_startup_seconds(double seconds) { metrics_.set_startup_seconds(seconds); }
  void Health(const std::shared_ptr<Exchange>& exchange) const;

 private:
  using Answer = const std::shared_ptr<Exchange>&;
  void Models(Answer exchange) const;
  void Model(Answer exchange) const;
  void Generate(Answer exchange, bool chat, const Access& access);
  void ChangeAdapters(Answer exchange, bool load);
  void Tokenize(Answer exchange) const;
  void Detokenize(Answer exchange) const;
  void ApplyTemplate(Answer exchange) const;
  void Version(Answer exchange) const;
  void SendRead(Answer exchange, const Fields& fields, JsonWriter& json) const;

  ModelContext context_;
  Metrics metrics_;
  std::atomic<bool> draining_{false};
  AdapterCalls adapter_calls_;
  std::function<int64_t()> connections_ = [] { return int64_t{0}; };
};

}  // namespace octavo::server
