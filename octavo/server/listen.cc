#include "octavo/server/listen.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::server {
namespace {

constexpr int kBacklog = 1024;

// Closed unless it is handed out.
struct Socket {
  explicit Socket(int family) : descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (descriptor < 0) throw Error(ErrorCode::kJob, fmt::format("no socket: {}", std::strerror(errno)));
  }
  ~Socket() {
    if (descriptor >= 0) ::close(descriptor);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int Release() { return std::exchange(descriptor, -1); }
  int descriptor;
};

void StartListening(const Socket& socket, const std::string& host) {
  if (::listen(socket.descriptor, kBacklog) == 0) return;
  throw Error(ErrorCode::kJob, fmt::format("cannot listen on {}: {}", host, std::strerror(errno)));
}

Listener ListenOnPath(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) ThrowUsage("host={}: the path is too long", path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  // A socket that nobody answers on is left over from a server that was killed.
  struct stat found = {};
  if (::stat(path.c_str(), &found) == 0) {
    const Socket probe(AF_UNIX);
    const bool answers = ::connect(probe.descriptor, generic, sizeof(address)) == 0;
    if (answers || !S_ISSOCK(found.st_mode)) {
      throw Error(ErrorCode::kJob, fmt::format("{} is in use", path), "give another path, or end that server");
    }
    ::unlink(path.c_str());
  }
  Socket socket(AF_UNIX);
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(socket.descriptor, generic, sizeof(address)) == 0;
  const int reason = errno;
  ::umask(before);
  if (!bound) throw Error(ErrorCode::kJob, fmt::format("cannot listen on {}: {}", path, std::strerror(reason)));
  StartListening(socket, path);
  return {socket.Release(), AF_UNIX, 0};
}

// The address with its size; a usage Error for what is none.
socklen_t ReadAddress(const std::string& host, int port, sockaddr_storage& storage) {
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, numeric.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    return sizeof(sockaddr_in);
  }
  if (inet_pton(AF_INET6, numeric.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    return sizeof(sockaddr_in6);
  }
  throw Error(ErrorCode::kUsage, fmt::format("host='{}' is not an address", host),
              "expected a numeric one (127.0.0.1, 0.0.0.0, ::1), localhost, or a path that ends in .sock");
}

}  // namespace

bool IsSocketPath(std::string_view host) { return host.ends_with(".sock"); }

std::string AddressOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  } else {
    return "unix";
  }
  const std::string_view found = text;
  return std::string(found.starts_with("::ffff:") ? found.substr(7) : found);
}

bool IsLoopback(std::string_view address) {
  if (address == "unix" || address == "::1") return true;
  // Only numbers: 127.0.0.1.example.org is a name, and whoever owns it decides what it leads to.
  in_addr v4 = {};
  return inet_pton(AF_INET, std::string(address).c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

Listener Listen(const std::string& host, int port) {
  if (IsSocketPath(host)) return ListenOnPath(host);
  sockaddr_storage storage = {};
  socklen_t size = ReadAddress(host, port, storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  Socket socket(address->sa_family);
  const int on = 1;
  ::setsockopt(socket.descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.descriptor, address, size) != 0) {
    if (errno == EADDRINUSE) {
      throw Error(ErrorCode::kJob, fmt::format("port {} is in use", port),
                  fmt::format("try port={}, or port=0 for any free one", port == 65535 ? 8080 : port + 1));
    }
    throw Error(ErrorCode::kJob, fmt::format("cannot listen on {} port {}: {}", host, port, std::strerror(errno)));
  }
  StartListening(socket, host);
  ::getsockname(socket.descriptor, address, &size);
  const int bound = ntohs(address->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&storage)->sin_port
                                                        : reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port);
  return {socket.Release(), address->sa_family, bound};
}

}  // namespace octavo::server
