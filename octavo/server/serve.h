// A server put together: routes over a service, access, connections, and an orderly end. Used by `octavo serve` and by
// the load tests; the verb only reads options.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "octavo/engine/service.h"
#include "octavo/server/access.h"
#include "octavo/server/api.h"
#include "octavo/server/api_options.h"
#include "octavo/server/http_server.h"
#include "octavo/server/router.h"
#include "octavo/server/web_files.h"

namespace octavo::server {

struct ServeOptions {
  HttpOptions http = {};
  AccessOptions access = {};
  std::span<const WebFile> files = {};  // the page at /
  std::filesystem::path web_dir = {};   // where its files are read instead
  double drain_seconds = 30;            // that running requests get when the server is told to end
};

// Throws the usage Error of a server that others could reach without a key.
void RequireSafe(const ServeOptions& options);

class Server {
 public:
  // Listens and answers when it returns: 503 `loading` to everything but the page, until Open. A port that is taken is
  // known before a model is loaded, and clients that come early are told to wait.
  explicit Server(ServeOptions options);
  ~Server();

  // From now on the service answers. It must outlive the server.
  void Open(engine::Service& service, ApiOptions api);

  std::string url() const { return http_->url(); }
  int port() const { return http_->port(); }
  int64_t connections() const { return http_->connections(); }

  // SIGINT or SIGTERM ends the server from now on: the first drains, a second cuts. `note` gets a line about it. After
  // Open, once.
  void EndOnSignals(const std::function<void(const std::string&)>& note);
  // Waits until a signal or Drain has ended the server. True when every request was finished.
  bool Run();
  // Any thread, after Open: health says 503, new requests get 503, running ones have drain_seconds; then Run returns.
  void Drain();

 private:
  struct Ending;
  void RunOnNetwork(const std::function<void()>& work);  // and waits for it
  void OnSignal(int count, const std::function<void(const std::string&)>& note);

  const ServeOptions options_;
  Router router_;
  engine::Service* service_ = nullptr;
  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Ending> ending_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::thread network_;
};

}  // namespace octavo::server
