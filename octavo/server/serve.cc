#include "octavo/server/serve.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

#include "octavo/base/error.h"
#include "octavo/server/api_error.h"

namespace octavo::server {
namespace {

HttpResponse LoadingAnswer() { return WaitResponse(503, "loading", "the model is being loaded", 2); }

}  // namespace

// What ends the server runs beside the network's thread: it waits.
struct Server::Ending {
  std::mutex mutex;
  std::condition_variable changed;
  std::thread thread;
  bool begun = false, run_ended = false;
  std::atomic<bool> cut{false};
};

void RequireSafe(const ServeOptions& options) {
  if (IsLocalHost(options.http.host) || !options.access.keys.empty()) return;
  throw Error(ErrorCode::kUsage, fmt::format("host={} needs an API key", options.http.host),
              "set OCTAVO_API_KEY or api_key_file=F; or host=127.0.0.1");
}

Server::Server(ServeOptions options)
    : options_(std::move(options)), router_(Access(options_.access)), ending_(std::make_unique<Ending>()) {
  RequireSafe(options_);
  router_.AddFiles(options_.files, options_.web_dir);
  for (const char* path : {"/health", "/v1/health"}) {
    router_.Add({.method = "GET",
                 .path = path,
                 .answer =
                     [this](const std::shared_ptr<Exchange>& exchange) {
                       if (api_ == nullptr) return exchange->Send(LoadingAnswer());
                       api_->Health(exchange);
                     },
                 .is_public = true,
                 .quick = true});
  }
  router_.set_stopgap(LoadingAnswer());
  http_ = std::make_unique<HttpServer>(options_.http, router_);
  network_ = std::thread([this] { http_->Run(); });
}

Server::~Server() {
  if (network_.joinable()) {
    http_->Stop();
    network_.join();
  }
  if (ending_->thread.joinable()) ending_->thread.join();
}

void Server::Open(engine::Service& service, ApiOptions options) {
  service_ = &service;
  auto api = std::make_unique<Api>(service, std::move(options));
  api->set_connections([this] { return http_->connections(); });
  api->set_startup_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  RunOnNetwork([&] {  // that thread looks into the routes
    api_ = std::move(api);
    api_->AddRoutes(router_);
    router_.set_stopgap(std::nullopt);
  });
}

void Server::RunOnNetwork(const std::function<void()>& work) {
  std::promise<void> done;
  http_->Post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

void Server::Drain() {
  const std::lock_guard lock(ending_->mutex);
  if (ending_->begun) return;
  ending_->begun = true;
  http_->EndWithNextAnswers();
  api_->BeginDrain();
  ending_->thread = std::thread([this] {
    service_->Drain(options_.drain_seconds);
    http_->Close();
    // Answers are complete; what is left is clients that read slowly.
    std::unique_lock waiting(ending_->mutex);
    const auto patience = std::chrono::duration<double>(std::min(options_.drain_seconds, 5.0));
    if (!ending_->changed.wait_for(waiting, patience, [&] { return ending_->run_ended; })) {
      ending_->cut = true;
      http_->Stop();
    }
  });
}

void Server::OnSignal(int count, const std::function<void(const std::string&)>& note) {
  if (count == 1) {
    const engine::ServiceStats stats = service_->Stats();
    note(fmt::format("draining  {} running, {} waiting, at most {:.0f} s; again to cut them", stats.running,
                     stats.waiting, options_.drain_seconds));
    return Drain();
  }
  ending_->cut = true;
  http_->Stop();
}

void Server::EndOnSignals(const std::function<void(const std::string&)>& note) {
  http_->OnSignal([this, note](int count) { OnSignal(count, note); });
  RunOnNetwork([] {});  // it is in force when this returns
}

bool Server::Run() {
  network_.join();
  const bool complete = !ending_->cut;
  {
    const std::lock_guard lock(ending_->mutex);
    ending_->run_ended = true;
  }
  ending_->changed.notify_all();
  // A second signal does not wait for the engine.
  if (complete && ending_->thread.joinable()) ending_->thread.join();
  return complete;
}

}  // namespace octavo::server
