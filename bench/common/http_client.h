// A blocking HTTP client on loopback for load tests: one connection, one request at a time, bodies by length or in
// chunks, with the time at which each piece came.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo::bench {

struct HttpAnswer {
  int status = 0;  // 0: the connection ended
  std::string head, body;
};

class HttpClient {
 public:
  // `from` is the last byte of the client's own address, 127.0.0.from: servers count connections by address.
  explicit HttpClient(int port, int from = 1) : port_(port), from_(from) {}
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    seen_.clear();
  }

  bool Connect() {
    Close();
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7F000000u + static_cast<uint32_t>(from_));
    if (from_ != 1) ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const timeval limit{120, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  bool Send(std::string_view bytes) {
    if (fd_ < 0 && !Connect()) return false;
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  static std::string PostText(std::string_view path, std::string_view body) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", path,
        body.size(), body);
  }

  // `on_piece` gets every chunk of a streamed body as it comes; false leaves at once.
  HttpAnswer Read(const std::function<bool(std::string_view)>& on_piece = {}) {
    HttpAnswer answer;
    const std::string head = Until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ") || head.size() < 13) return answer;
    answer.status = std::stoi(head.substr(9, 3));
    answer.head = head;
    if (head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (true) {
        const std::string line = Until("\r\n");
        if (line.empty()) return {};
        const size_t size = std::stoul(line, nullptr, 16);
        if (!Fill(size + 2)) return {};
        const std::string piece = seen_.substr(0, size);
        seen_.erase(0, size + 2);
        if (size == 0) break;
        answer.body += piece;
        if (on_piece && !on_piece(piece)) {
          Close();
          return answer;
        }
      }
    } else if (const size_t at = head.find("Content-Length: "); at != std::string::npos) {
      const size_t size = std::stoul(head.substr(at + 16));
      if (!Fill(size)) return {};
      answer.body = seen_.substr(0, size);
      seen_.erase(0, size);
    }
    if (head.find("Connection: close") != std::string::npos) Close();
    return answer;
  }

  HttpAnswer Post(std::string_view path, std::string_view body,
                  const std::function<bool(std::string_view)>& on_piece = {}) {
    if (!Send(PostText(path, body))) return {};
    return Read(on_piece);
  }
  bool connected() const { return fd_ >= 0; }
  // Whether something has come, or the other side has closed.
  bool Peek() const {
    char byte = 0;
    const ssize_t count = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  HttpAnswer Get(std::string_view path) {
    if (!Send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path))) return {};
    return Read();
  }

 private:
  bool Some() {
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    seen_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  bool Fill(size_t size) {
    while (seen_.size() < size) {
      if (!Some()) return false;
    }
    return true;
  }
  std::string Until(std::string_view end) {
    size_t found = 0;
    while ((found = seen_.find(end)) == std::string::npos) {
      if (!Some()) return "";
    }
    std::string result = seen_.substr(0, found + end.size());
    seen_.erase(0, found + end.size());
    return result;
  }

  int port_, from_;
  int fd_ = -1;
  std::string seen_;
};

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace octavo::bench
