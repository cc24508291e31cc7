#include "octavo/server/router.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>

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

std::string_view Trim(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// The parts of a list; none of our values holds the separator.
std::vector<std::string_view> Split(std::string_view list, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = std::min(list.find(separator), list.size());
    parts.push_back(Trim(list.substr(0, end)));
    if (end == list.size()) return parts;
    list.remove_prefix(end + 1);
  }
}

// "gzip;q=0" is a refusal, and "*" speaks for what is not named.
bool AcceptsGzip(const HttpRequest& request) {
  const std::string* accepted = request.Find("accept-encoding");
  if (accepted == nullptr) return false;
  std::optional<bool> named, others;
  for (const std::string_view coding : Split(*accepted, ',')) {
    const std::vector<std::string_view> parts = Split(coding, ';');
    bool wanted = true;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].starts_with("q=") || parts[i].starts_with("Q=")) {
        wanted = parts[i].find_first_not_of("0.", 2) != std::string_view::npos;
      }
    }
    if (EqualIgnoringCase(parts[0], "gzip")) named = wanted;
    if (parts[0] == "*") others = wanted;
  }
  return named.value_or(others.value_or(false));
}

// Whether the client has this version of a file: one of a list, marked as weak or not, or any.
bool HasVersion(const HttpRequest& request, std::string_view etag) {
  const std::string* known = request.Find("if-none-match");
  if (known == nullptr) return false;
  const std::vector<std::string_view> tags = Split(*known, ',');
  return std::any_of(tags.begin(), tags.end(), [&](std::string_view tag) {
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    return tag == etag || tag == "*";
  });
}

// For the few clients that do not take the files as they are embedded. A gzip file ends with the size of what it holds.
std::string Unzip(std::string_view gzip) {
  constexpr int kGzip = 16 + MAX_WBITS;
  uint32_t size = 0;
  for (size_t i = 1; i <= sizeof size; ++i) size = size << 8 | static_cast<uint8_t>(gzip[gzip.size() - i]);
  std::string text(size, '\0');
  z_stream stream = {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = size;
  if (inflateInit2(&stream, kGzip) != Z_OK) throw Error(ErrorCode::kJob, "no memory to unpack a page");
  const int state = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (state != Z_STREAM_END || stream.avail_out != 0) throw Error(ErrorCode::kJob, "a page is damaged");
  return text;
}

// The file that a table has for the path, as it is on the disk now.
std::string ReadPage(const std::filesystem::path& folder, std::string_view path) {
  const std::filesystem::path name = folder / (path == "/" ? "index.html" : path.substr(1));
  std::ifstream file(name, std::ios::binary);  // not mapped: an editor may cut it short meanwhile
  if (!file) ThrowFile("{}: cannot open", name.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void SendFile(const WebFile& file, const std::filesystem::path& folder, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response{.content_type = std::string(file.content_type),
                        .headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cache-Control", "no-cache"}}};
  if (!folder.empty()) {
    response.body = ReadPage(folder, file.path);
    return exchange->Send(std::move(response));
  }
  response.headers.emplace_back("Vary", "Accept-Encoding");
  response.headers.emplace_back("ETag", file.etag);
  if (HasVersion(exchange->request(), file.etag)) {
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

void Router::AddFiles(std::span<const WebFile> files, const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::exists(folder / "index.html", ignored)) {
    throw Error(ErrorCode::kUsage, fmt::format("web_dir={}: no index.html there", folder.string()),
                "give the folder of a page's sources, such as web/chat");
  }
  for (const WebFile& file : files) {
    Add({.method = "GET",
         .path = std::string(file.path),
         .answer = [file, folder](const std::shared_ptr<Exchange>& exchange) { SendFile(file, folder, exchange); },
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
