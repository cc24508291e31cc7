#include "octavo/server/serve.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "octavo/base/error.h"

namespace octavo::server {

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

Server::Server(engine::Service& service, ServeOptions options)
    : service_(service),
      options_(std::move(options)),
      api_(service, options_.api),
      router_(Access(options_.access)),
      ending_(std::make_unique<Ending>()) {
  RequireSafe(options_);
  api_.AddRoutes(router_);
  router_.AddFiles(options_.files);
  http_ = std::make_unique<HttpServer>(options_.http, router_);
  api_.set_connections([this] { return http_->connections(); });
}

Server::~Server() {
  if (ending_->thread.joinable()) ending_->thread.join();
}

void Server::Drain() {
  const std::lock_guard lock(ending_->mutex);
  if (ending_->begun) return;
  ending_->begun = true;
  api_.BeginDrain();
  ending_->thread = std::thread([this] {
    service_.Drain(options_.drain_seconds);
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

bool Server::Run(bool signals, const std::function<void(const std::string&)>& note) {
  if (signals) {
    http_->OnSignal([this, note](int count) {
      if (count == 1) {
        const engine::ServiceStats stats = service_.Stats();
        note(fmt::format("draining  {} running, {} waiting, at most {:.0f} s; again to cut them", stats.running,
                         stats.waiting, options_.drain_seconds));
        return Drain();
      }
      ending_->cut = true;
      http_->Stop();
    });
  }
  http_->Run();
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
