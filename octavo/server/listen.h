// Where the server listens: addresses, ports and local sockets of the system, without a word about HTTP. Used by
// http_server.cc.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace octavo::server {

struct Listener {
  int descriptor = -1;  // the caller's to close
  int family = 0;
  int port = 0;  // that was bound; 0 for a local socket
};

// Binds and listens. `host` is a numeric address, "localhost", or the path of a local socket that ends in .sock, which
// only its owner may then open. Throws a job Error when the place is taken, a usage Error when there is no such place.
Listener Listen(const std::string& host, int port);

bool IsSocketPath(std::string_view host);
// "127.0.0.1", "::1", or "unix". An IPv4 client of an IPv6 socket is the same client.
std::string AddressOf(const sockaddr* address);
// Of what AddressOf gives.
bool IsLoopback(std::string_view address);

}  // namespace octavo::server
