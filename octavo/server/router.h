// Which function answers which path, with what every answer has in common: access checks before the body, 404 and 405,
// errors as JSON, the files of a web page. Used by `octavo serve` and `octavo dashboard`; tested without sockets.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/server/access.h"
#include "octavo/server/http.h"
#include "octavo/server/web_files.h"

namespace octavo::server {

struct Route {
  std::string method;  // GET also answers HEAD
  std::string path;    // "/v1/models"; ending in /* it takes every path below
  std::function<void(const std::shared_ptr<Exchange>&)> answer = {};
  bool is_public = false;  // no key needed
  bool quick = false;      // runs on the network's thread
};

class Router : public HttpHandler {
 public:
  explicit Router(Access access) : access_(std::move(access)) {}

  void Add(Route route) { routes_.push_back(std::move(route)); }
  // The files must stay. Anyone may read them: they hold no secret, and the page asks for the key itself.
  // With `folder` they are read there instead, at every request, as whoever writes a page wants it; no other file is.
  void AddFiles(std::span<const WebFile> files, const std::filesystem::path& folder = {});
  // While there is nothing behind the routes yet: requests that find no route get this answer instead of 404.
  void set_stopgap(std::optional<HttpResponse> answer) { stopgap_ = std::move(answer); }
  const Access& access() const { return access_; }
  const std::vector<Route>& routes() const { return routes_; }

  std::optional<HttpResponse> Admit(const HttpRequest& request) override;
  Headers ExtraHeaders(const HttpRequest& request) const override { return access_.CorsHeaders(request); }
  bool IsQuick(const HttpRequest& request) const override;
  void Answer(const std::shared_ptr<Exchange>& exchange) override;
  HttpResponse Refuse(int status, std::string_view reason) override;

 private:
  const Route* Find(const HttpRequest& request) const;

  Access access_;
  std::vector<Route> routes_;
  std::optional<HttpResponse> stopgap_;
};

}  // namespace octavo::server
