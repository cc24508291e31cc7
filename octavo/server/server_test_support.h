// For tests of this folder: an exchange without sockets, a router over a service without a model, and a plain client.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "octavo/engine/mock_service.h"
#include "octavo/server/api.h"
#include "octavo/server/http_server.h"
#include "octavo/server/router.h"

namespace octavo::server {

// Work that is posted runs in Wait, on the test's thread.
class FakeExchange : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void DropBody() override { request_.body.clear(); }
  void Send(HttpResponse response) override {
    response_ = std::move(response);
    done_ = true;
  }
  void Start(HttpResponse head) override {
    response_ = std::move(head);
    streamed_ = true;
  }
  void Write(std::string piece) override { pieces_.push_back(std::move(piece)); }
  void Finish() override { done_ = true; }
  void Post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void Every(double, std::function<void()> work) override { tick_ = std::move(work); }
  void OnClosed(std::function<void()> closed) override { closed_ = std::move(closed); }

  // Runs what is posted until the answer is complete.
  const HttpResponse& Wait() {
    while (!done_) RunOne();
    for (const std::string& piece : pieces_) response_.body += piece;
    pieces_.clear();
    tick_ = nullptr;
    closed_ = nullptr;
    return response_;
  }
  void RunOne() {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !work_.empty(); });
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
  bool posted() {
    const std::lock_guard lock(mutex_);
    return !work_.empty();
  }
  // Whoever answers is told, and nothing of his is kept.
  void Leave() {
    closed_();
    closed_ = tick_ = nullptr;
    const std::lock_guard lock(mutex_);
    left_ = true;
    work_.clear();
  }
  void Tick() { tick_(); }
  bool streamed() const { return streamed_; }
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  HttpRequest request_;
  HttpResponse response_;
  std::vector<std::string> pieces_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::function<void()> tick_, closed_;
  bool done_ = false, streamed_ = false, left_ = false;
};

// A chat template of the usual shape: roles in tags, tools as JSON, calls in Hermes' form.
inline constexpr std::string_view kTestTemplate =
    "{% if tools %}[tools]{{ tools | tojson }}[/tools]{# <tool_call> #}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

struct TestApi {
  explicit TestApi(engine::MockOptions mock = {}, ApiOptions options = DefaultOptions(), AccessOptions access = {})
      : tokenizer(text::MakeByteTokenizer()),
        service(*tokenizer, std::move(mock)),
        api(service, std::move(options)),
        router(Access(std::move(access))) {
    api.AddRoutes(router);
  }

  static ApiOptions DefaultOptions() {
    ApiOptions options;
    options.templates.templates["default"] = kTestTemplate;
    options.sampling.temperature = 0;
    return options;
  }

  // An answer without sockets, as the network's thread would get it.
  HttpResponse Ask(HttpRequest request) {
    if (request.Find("host") == nullptr) request.headers.emplace_back("Host", "localhost:8080");
    if (request.method == "POST" && request.Find("content-type") == nullptr) {
      request.headers.emplace_back("Content-Type", "application/json");
    }
    if (std::optional<HttpResponse> refused = router.Admit(request)) return *refused;
    const auto exchange = std::make_shared<FakeExchange>(std::move(request));
    router.Answer(exchange);
    return exchange->Wait();
  }
  HttpResponse Get(const std::string& path) { return Ask({.method = "GET", .path = path}); }
  HttpResponse Post(const std::string& path, const std::string& body) {
    return Ask({.method = "POST", .path = path, .body = body});
  }
  nlohmann::json Json(const HttpResponse& response) { return nlohmann::json::parse(response.body); }
  // The objects of a stream, without the final [DONE], which is checked by `done`.
  static std::vector<nlohmann::json> Chunks(const std::string& body, bool* done = nullptr) {
    std::vector<nlohmann::json> chunks;
    if (done != nullptr) *done = false;
    size_t at = 0;
    while ((at = body.find("data: ", at)) != std::string::npos) {
      const size_t end = body.find("\n\n", at);
      const std::string data = body.substr(at + 6, end - at - 6);
      if (data == "[DONE]") {
        if (done != nullptr) *done = true;
      } else {
        chunks.push_back(nlohmann::json::parse(data));
      }
      at = end;
    }
    return chunks;
  }

  std::unique_ptr<text::Tokenizer> tokenizer;
  engine::MockService service;
  Api api;
  Router router;
};

// The same over a socket, on a thread of its own.
class TestServer {
 public:
  TestServer(HttpHandler& handler, HttpOptions options)
      : server_(options, handler), thread_([this] { server_.Run(); }) {}
  ~TestServer() {
    server_.Stop();
    thread_.join();
  }
  HttpServer& operator*() { return server_; }
  HttpServer* operator->() { return &server_; }
  void Join() {
    thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  HttpServer server_;
  std::thread thread_;
};

inline HttpOptions AnyPort() { return {.port = 0}; }

// A client that sends what it is told and reads what comes.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    const timeval limit{20, 0};  // a test that hangs fails instead
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Reads until the text holds `end`, or the other side closes. What comes after stays for the next call.
  std::string ReadUntil(std::string_view end) {
    size_t found = 0;
    while ((found = seen_.find(end)) == std::string::npos && ReadSome()) {
    }
    const size_t count = found == std::string::npos ? seen_.size() : found + end.size();
    std::string result = seen_.substr(0, count);
    seen_.erase(0, count);
    return result;
  }
  std::string ReadAll() {
    while (ReadSome()) {
    }
    return std::exchange(seen_, "");
  }
  // One answer with a Content-Length: head and body.
  std::string ReadAnswer() {
    const std::string head = ReadUntil("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    while (seen_.size() < length && ReadSome()) {
    }
    const std::string body = seen_.substr(0, length);
    seen_.erase(0, length);
    return head + body;
  }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

 private:
  bool ReadSome() {
    char bytes[4096];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    seen_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int fd_;
  bool connected_ = false;
  std::string seen_;
};

inline std::string PostText(const std::string& path, const std::string& body, const std::string& more = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), more, body);
}

}  // namespace octavo::server
