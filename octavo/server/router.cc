#include "octavo/server/router.h"

#include <zlib.h>

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/server/api_error.h"

namespace octavo::server {
namespace {

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
    "'none'; frame-ancestors 'none'; form-action 'self'";

bool PathFits(const Route& route, std::string_view path) {
  const std::string_view pattern = route.path;
  if (!pattern.ends_with("/*")) return path == pattern;
  const std::string_view before = pattern.substr(0, pattern.size() - 1);
  return path.size() > before.size() && path.starts_with(before);
}

std::string_view MethodOf(const HttpRequest& request) {
  return request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
}

bool TakesJson(const HttpRequest& request) {
  const std::string* type = request.Find("content-type");
  if (type == nullptr) return false;
  std::string_view name = std::string_view(*type).substr(0, type->find(';'));
  while (name.ends_with(' ')) name.remove_suffix(1);
  return EqualIgnoringCase(name, "application/json");
}

bool AcceptsGzip(const HttpRequest& request) {
  const std::string* accepted = request.Find("accept-encoding");
  return accepted != nullptr && accepted->find("gzip") != std::string::npos;
}

// For the few clients that do not take the files as they are embedded; they are ours, so they are whole.
std::string Unzip(std::string_view gzip) {
  constexpr int kGzip = 16 + MAX_WBITS;
  z_stream stream = {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  if (inflateInit2(&stream, kGzip) != Z_OK) throw Error(ErrorCode::kJob, "no memory to unpack a page");
  std::string text;
  int state = Z_OK;
  while (state == Z_OK) {
    const size_t before = text.size();
    text.resize(before + (size_t{64} << 10));
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + before);
    stream.avail_out = static_cast<uInt>(text.size() - before);
    state = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (state != Z_STREAM_END) throw Error(ErrorCode::kJob, "a page is damaged");
  return text;
}

void SendFile(const WebFile& file, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response{.content_type = std::string(file.content_type),
                        .headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cache-Control", "no-cache"},
                                    {"Vary", "Accept-Encoding"},
                                    {"ETag", std::string(file.etag)}}};
  const std::string* known = exchange->request().Find("if-none-match");
  if (known != nullptr && *known == file.etag) {
    response.status = 304;
  } else if (!AcceptsGzip(exchange->request())) {
    response.body = Unzip(file.gzip);
  } else {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = std::string(file.gzip);
  }
  exchange->Send(std::move(response));
}

}  // namespace

void Router::AddFiles(std::span<const WebFile> files) {
  for (const WebFile& file : files) {
    Add({.method = "GET",
         .path = std::string(file.path),
         .answer = [file](const std::shared_ptr<Exchange>& exchange) { SendFile(file, exchange); },
         .is_public = true,
         .quick = true});
  }
}

const Route* Router::Find(const HttpRequest& request) const {
  for (const Route& route : routes_) {
    if (route.method == MethodOf(request) && PathFits(route, request.path)) return &route;
  }
  return nullptr;
}

std::optional<HttpResponse> Router::Admit(const HttpRequest& request) {
  const Route* route = Find(request);
  if (std::optional<HttpResponse> answer = access_.Preflight(request)) return answer;
  if (std::optional<HttpResponse> answer = access_.Check(request, route == nullptr || !route->is_public)) return answer;
  if (route == nullptr && stopgap_) return stopgap_;
  if (route == nullptr) {
    std::string methods;
    for (const Route& other : routes_) {
      if (!PathFits(other, request.path)) continue;
      methods += (methods.empty() ? "" : ", ") + other.method;
    }
    if (methods.empty()) return ErrorResponse(404, "", "", fmt::format("there is nothing at {}", request.path));
    HttpResponse response =
        ErrorResponse(405, "", "", fmt::format("{} takes {}, not {}", request.path, methods, request.method));
    response.headers.emplace_back("Allow", methods);
    return response;
  }
  if (request.method == "POST" && !TakesJson(request)) {
    return ErrorResponse(415, "", "", "the body must be JSON: send Content-Type: application/json");
  }
  return std::nullopt;
}

bool Router::IsQuick(const HttpRequest& request) const {
  const Route* route = Find(request);
  return route == nullptr || route->quick;
}

void Router::Answer(const std::shared_ptr<Exchange>& exchange) {
  const Route* route = Find(exchange->request());
  if (route == nullptr) return exchange->Send(ErrorResponse(404, "", "", "there is nothing at this path"));
  try {
    route->answer(exchange);
  } catch (const std::exception& error) {
    exchange->Send(ErrorResponse(error));
  }
}

HttpResponse Router::Refuse(int status, std::string_view reason) {
  return status == 429 ? WaitResponse(status, "", reason, 5) : ErrorResponse(status, "", "", reason);
}

}  // namespace octavo::server
