// One HTTP request and its answer as plain data, and the exchange between them: what routes are written against and
// tested with, without sockets. `http_server.h` moves them over connections. Knows no route and no JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = {};  // "GET"
  std::string path = {};    // of the target, percent signs decoded: "/v1/models"
  std::string query = {};   // behind '?', as sent
  Headers headers = {};
  std::string body = {};
  std::string peer = {};     // address without port, "unix" for a local socket
  bool chunks_known = true;  // false for HTTP/1.0, which has no chunks

  // The first header of this name, whatever its case; null without.
  const std::string* Find(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  Headers headers = {};
  bool close = false;  // the connection ends with this answer
};

// One request being answered. Every method may be called from any thread; the answer is either Send, or Start, Write…,
// Finish. Dropping the last pointer without an answer sends a 500. After the client went away all of them do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void Send(HttpResponse response) = 0;
  // The head of an answer whose body comes in pieces; the response's own body is the first piece.
  virtual void Start(HttpResponse head) = 0;
  virtual void Write(std::string piece) = 0;
  virtual void Finish() = 0;
  // Runs `work` on the network's thread, in the order of the calls. It must not block.
  virtual void Post(std::function<void()> work) = 0;
  // Runs `work` on the network's thread every `seconds` until the exchange ends.
  virtual void Every(double seconds, std::function<void()> work) = 0;
  // The body is understood and not needed any more; it counts against a bound as long as it is there.
  virtual void DropBody() = 0;
  // Called once on the network's thread if the client leaves (or is cut) before the answer is complete.
  virtual void OnClosed(std::function<void()> closed) = 0;
};

// Who answers requests.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // On the network's thread when the headers are known and the body is not: an answer ends the request at once.
  virtual std::optional<HttpResponse> Admit(const HttpRequest& request) = 0;
  // Headers that go on whatever answer the request gets.
  virtual Headers ExtraHeaders(const HttpRequest& request) const = 0;
  // Whether Answer is quick enough for the network's thread; otherwise a worker runs it.
  virtual bool IsQuick(const HttpRequest& request) const = 0;
  virtual void Answer(const std::shared_ptr<Exchange>& exchange) = 0;
  // An answer to what is no acceptable request: malformed, too large, too slow. `reason` is one line.
  virtual HttpResponse Refuse(int status, std::string_view reason) = 0;
};

// "Not Found" for 404.
std::string_view StatusText(int status);

// Status line and headers of an answer with a body of `length` bytes, or in pieces when that is negative. A header
// whose value would end its line is left out.
std::string ResponseHead(const HttpResponse& response, const Headers& extra, int64_t length, bool chunked, bool close);

// Decodes %XX; nothing when a percent sign is not followed by two digits or a NUL comes out.
std::optional<std::string> DecodePercent(std::string_view text);

// The path and query of a target: "/health", or the form that proxies are sent, "http://localhost/health", if it names
// the host. Empty for anything else.
std::string LocalTarget(std::string target, std::string_view host);

// Equal but for the case of ASCII letters.
bool EqualIgnoringCase(std::string_view a, std::string_view b);

}  // namespace octavo::server
