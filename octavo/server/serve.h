// A server put together: routes over a service, access, connections, and an orderly end. Used by `octavo serve` and by
// the load tests; the verb only reads options.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

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
  ApiOptions api = {};
  std::span<const WebFile> files = {};  // the page at /
  double drain_seconds = 30;            // that running requests get when the server is told to end
};

// Throws the usage Error of a server that others could reach without a key.
void RequireSafe(const ServeOptions& options);

class Server {
 public:
  // Listens when it returns. The service must outlive the server.
  Server(engine::Service& service, ServeOptions options);
  ~Server();

  std::string url() const { return http_->url(); }
  int port() const { return http_->port(); }
  int64_t connections() const { return http_->connections(); }

  // Serves until SIGINT or SIGTERM (the first drains, a second cuts) if `signals`, or Drain. `note` gets a line about
  // what happens. True when every request was finished.
  bool Run(bool signals, const std::function<void(const std::string&)>& note);
  // Any thread: health says 503, new requests get 503, running ones have drain_seconds; then Run returns.
  void Drain();

 private:
  struct Ending;

  engine::Service& service_;
  const ServeOptions options_;
  Api api_;
  Router router_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Ending> ending_;
};

}  // namespace octavo::server
