// The HTTP server: connections in, requests to a handler, answers out. Used by `octavo serve` and `octavo dashboard`.
// One network thread runs every connection; slow clients cost memory for their buffers and nothing else. What is not an
// acceptable request never reaches the handler's Answer. Knows no routes; TLS is left to a proxy in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "octavo/server/http.h"

namespace octavo::server {

struct HttpOptions {
  std::string host = "127.0.0.1";  // a numeric address, "localhost", or the path of a local socket that ends in .sock
  int port = 8080;                 // 0: any free one
  int workers = 2;                 // threads that run Answer for requests that are not quick
  size_t body_bytes = size_t{16} << 20;
  size_t header_bytes = size_t{16} << 10;
  int headers = 100;
  size_t held_bytes = size_t{64} << 20;    // of all bodies that are being sent or read; over it the largest are refused
  double request_seconds = 30;             // from a request's first byte to its last
  double idle_seconds = 60;                // between requests of one connection
  double stalled_seconds = 30;             // a client that takes no byte of its answer for so long is cut
  size_t unsent_bytes = size_t{64} << 20;  // and one that leaves more than that unread
  int connections = 1024;
  int connections_per_address = 64;     // of other machines
  int connections_from_loopback = 960;  // a proxy on this machine is one address for all its clients
  // When there is no room for a new client, the one that has gone longest without a whole request makes it: at once if
  // its address has more of that kind than the newcomer's, else if it has gone so long. Clients that dribble a request
  // can then not keep others out.
  double patience_seconds = 1;
};

// True for addresses that only this machine reaches: loopback and local sockets.
bool IsLocalHost(const std::string& host);

class HttpServer {
 public:
  // Binds and listens, so that clients that come before Run wait. Throws a job Error when it cannot.
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;         // the one that was bound; 0 for a local socket
  std::string url() const;  // "http://127.0.0.1:8080", "unix:/run/octavo.sock"
  int64_t connections() const;

  // Serves on the calling thread until Close has let the last connection end, or Stop.
  void Run();
  // Any thread: from now on answers say Connection: close. New connections are still taken.
  void EndWithNextAnswers();
  // Any thread: no new connections or requests; answers that have begun are finished.
  void Close();
  // Any thread: every connection is cut, now.
  void Stop();
  // `received(n)` on the network's thread for the nth SIGINT or SIGTERM from now on. Any thread, once.
  void OnSignal(std::function<void(int)> received);
  void Post(std::function<void()> work);

  struct Core;  // of http_server.cc

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace octavo::server
