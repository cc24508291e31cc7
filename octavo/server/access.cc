#include "octavo/server/access.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/server/api_error.h"
#include "octavo/server/listen.h"

namespace octavo::server {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

// The key that a request brings, empty without one.
std::string_view GivenKey(const HttpRequest& request) {
  if (const std::string* given = request.Find("authorization")) {
    const std::string_view value = *given;
    constexpr std::string_view kBearer = "Bearer ";
    if (value.size() > kBearer.size() && EqualIgnoringCase(value.substr(0, kBearer.size()), kBearer)) {
      return Trim(value.substr(kBearer.size()));
    }
  }
  const std::string* given = request.Find("x-api-key");
  return given != nullptr ? Trim(*given) : std::string_view();
}

// "localhost:8080" without the port; nothing for what is no host.
std::string_view HostName(std::string_view host) {
  const bool bracket = host.starts_with('[');
  const size_t end = bracket ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return {};
  const std::string_view port = host.substr(end + (bracket ? 1 : 0));
  const bool digits = std::all_of(port.begin(), port.end(),
                                  [&](const char& c) { return &c == port.data() ? c == ':' : c >= '0' && c <= '9'; });
  return digits ? host.substr(bracket ? 1 : 0, end - (bracket ? 1 : 0)) : std::string_view();
}

// "app.example:8443" of "https://app.example:8443".
std::string_view HostOf(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

}  // namespace

std::vector<Sha256Digest> ParseKeys(std::string_view text, std::string_view name) {
  std::vector<Sha256Digest> keys;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    if (!line.empty() && !line.starts_with('#')) keys.push_back(Sha256(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (keys.empty()) ThrowUsage("{}: no key in it; one a line is expected", name);
  return keys;
}

bool Access::KeyIsKnown(const HttpRequest& request) const {
  const Sha256Digest given = Sha256(GivenKey(request));
  bool known = false;  // all are compared, whichever fits
  for (const Sha256Digest& key : options_.keys) known = EqualInConstantTime(given, key) || known;
  return known;
}

bool Access::IsAllowedOrigin(const std::string& origin) const {
  return std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), origin) !=
         options_.allowed_origins.end();
}

// A proxy in front that keeps Host sends the name under which pages of an allowed origin know the server.
bool Access::IsAllowedHost(std::string_view host) const {
  const std::string_view name = HostName(host);
  if (name.empty()) return false;
  if (EqualIgnoringCase(name, "localhost") || (name != "unix" && IsLoopback(name))) return true;
  return std::any_of(options_.allowed_origins.begin(), options_.allowed_origins.end(),
                     [&](const std::string& origin) { return EqualIgnoringCase(HostName(HostOf(origin)), name); });
}

std::optional<HttpResponse> Access::Check(const HttpRequest& request, bool with_key) const {
  const std::string* host = request.Find("host");
  if (options_.check_host && (host == nullptr || !IsAllowedHost(*host))) {
    return ErrorResponse(403, "host", "",
                         "this server listens on loopback and answers to localhost, 127.0.0.1, [::1] and the hosts of "
                         "allowed_origins only");
  }
  if (const std::string* origin = request.Find("origin")) {
    const bool same = host != nullptr && !host->empty() && EqualIgnoringCase(HostOf(*origin), *host);
    if (!same && !IsAllowedOrigin(*origin)) {
      return ErrorResponse(403, "origin", "", "pages of this origin may not use the server; see allowed_origins");
    }
  }
  if (with_key && !options_.keys.empty() && !KeyIsKnown(request)) {
    return ErrorResponse(401, "invalid_api_key", "",
                         "a valid API key is needed: send it as Authorization: Bearer KEY or X-Api-Key: KEY");
  }
  return std::nullopt;
}

Headers Access::CorsHeaders(const HttpRequest& request) const {
  const std::string* origin = request.Find("origin");
  if (origin == nullptr || !IsAllowedOrigin(*origin)) return {};
  return {{"Access-Control-Allow-Origin", *origin},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "x-octavo-ignored, x-should-retry, Retry-After"}};
}

std::optional<HttpResponse> Access::Preflight(const HttpRequest& request) const {
  const std::string* origin = request.Find("origin");
  if (request.method != "OPTIONS" || origin == nullptr || !IsAllowedOrigin(*origin)) return std::nullopt;
  // A page that may ask at all may send what headers it likes: clients add their own, such as X-Stainless-Lang.
  const std::string* asked = request.Find("access-control-request-headers");
  return HttpResponse{.status = 204,
                      .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                                  {"Access-Control-Allow-Headers",
                                   asked != nullptr ? *asked : "Authorization, Content-Type, X-Api-Key"},
                                  {"Access-Control-Max-Age", "600"}}};
}

std::string Access::Scope(const HttpRequest& request) const {
  return options_.keys.empty() ? std::string() : Sha256Hex(GivenKey(request));
}

}  // namespace octavo::server
