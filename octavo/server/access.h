// Who may ask: API keys, the Host that a browser thinks it talks to, and the pages that may use the server. Checked for
// every request before its body is read. Keys are kept as SHA-256 digests and compared in constant time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/sha256.h"
#include "octavo/server/http.h"

namespace octavo::server {

struct AccessOptions {
  std::vector<Sha256Digest> keys = {};  // none: no key is asked for
  // "https://example.org"; pages from elsewhere are refused. "*" is not taken.
  std::vector<std::string> allowed_origins = {};
  // On loopback a Host that is neither a name of this machine nor of an allowed origin comes from a page that resolves
  // its own name to 127.0.0.1.
  bool check_host = true;
};

// The keys in a file: one a line; blank lines and lines that begin with # are left out. A usage Error without any.
std::vector<Sha256Digest> ParseKeys(std::string_view text, std::string_view name);

class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // The answer to a request that may not pass. `with_key`: the route needs one.
  std::optional<HttpResponse> Check(const HttpRequest& request, bool with_key) const;
  // The headers that let an allowed page of another origin read an answer.
  Headers CorsHeaders(const HttpRequest& request) const;
  // The answer to a browser that asks whether it may ask.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;
  // What separates the caches of clients: the digest of the key, empty without keys.
  std::string Scope(const HttpRequest& request) const;

 private:
  bool KeyIsKnown(const HttpRequest& request) const;
  bool IsAllowedHost(std::string_view host) const;
  bool IsAllowedOrigin(const std::string& origin) const;

  AccessOptions options_;
};

}  // namespace octavo::server
