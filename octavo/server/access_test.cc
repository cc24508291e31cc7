#include "octavo/server/access.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

int StatusWith(const Access& access, Headers headers, bool with_key = true) {
  const HttpRequest request{.method = "GET", .path = "/v1/models", .headers = std::move(headers)};
  const std::optional<HttpResponse> answer = access.Check(request, with_key);
  return answer ? answer->status : 200;
}

TEST(Access, HostsOfLoopback) {
  const Access access({});
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080", "127.1.2.3", "LOCALHOST",
                           "LocalHost:8080", "[::1]", "localhost:"}) {
    EXPECT_EQ(StatusWith(access, {{"Host", host}}), 200) << host;
  }
  for (const char* host : {"example.org", "localhost.example.org", "[::2]:8080", "", "0.0.0.0", "evil:127.0.0.1",
                           "127.0.0.1.example.org", "127.example.org:8080", "127.1", "unix", "[127.0.0.1",
                           "localhost:evil.com", "localhost:80:80", "[::1]evil", "[::1]:8x", "[]", ":80"}) {
    EXPECT_EQ(StatusWith(access, {{"Host", host}}), 403) << host;
  }
  EXPECT_EQ(StatusWith(Access({.check_host = false}), {{"Host", "example.org"}}), 200);
  // A proxy that keeps Host.
  const Access behind({.allowed_origins = {"https://App.example:8443", "nonsense"}});
  for (const char* host : {"app.example", "APP.example:80", "localhost"}) {
    EXPECT_EQ(StatusWith(behind, {{"Host", host}}), 200) << host;
  }
  for (const char* host : {"example", "app.example.org", "app.example:x", "", "nonsense"}) {
    EXPECT_EQ(StatusWith(behind, {{"Host", host}}), 403) << host;
  }
}

TEST(Access, OriginsOfPages) {
  const Access access({.allowed_origins = {"https://app.example"}});
  const auto with = [&](const char* origin) {
    return StatusWith(access, {{"Host", "localhost:8080"}, {"Origin", origin}});
  };
  EXPECT_EQ(with("http://localhost:8080"), 200);
  EXPECT_EQ(with("https://app.example"), 200);
  for (const char* origin :
       {"https://other.example", "null", "http://localhost:9999", "https://app.example.evil", "x"}) {
    EXPECT_EQ(with(origin), 403) << origin;
  }
  HttpRequest request{.method = "OPTIONS", .path = "/v1/models", .headers = {{"Origin", "https://app.example"}}};
  ASSERT_TRUE(access.Preflight(request).has_value());
  EXPECT_EQ(access.Preflight(request)->status, 204);
  EXPECT_EQ(access.CorsHeaders(request)[0].second, "https://app.example");
  EXPECT_EQ(access.CorsHeaders(request)[2].second, "x-octavo-ignored, x-should-retry, Retry-After");
  EXPECT_EQ(access.Preflight(request)->headers[1].second, "Authorization, Content-Type, X-Api-Key");
  request.headers.emplace_back("Access-Control-Request-Headers", "authorization,x-stainless-lang,x-stainless-os");
  EXPECT_EQ(access.Preflight(request)->headers[1].second, "authorization,x-stainless-lang,x-stainless-os");
  request.headers = {{"Origin", "https://other.example"}};
  EXPECT_FALSE(access.Preflight(request).has_value());
  EXPECT_TRUE(access.CorsHeaders(request).empty());
}

TEST(Access, KeysInEitherHeader) {
  const Access access({.keys = ParseKeys("# two\nfirst\n\n  second \r\n", "keys")});
  const auto with = [&](const char* name, const char* value) {
    return StatusWith(access, {{"Host", "localhost"}, {name, value}});
  };
  EXPECT_EQ(with("Authorization", "Bearer first"), 200);
  EXPECT_EQ(with("authorization", "bearer second"), 200);
  EXPECT_EQ(with("X-Api-Key", "first"), 200);
  for (const char* wrong :
       {"Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "Basic first", "first", "Bearer # two"}) {
    EXPECT_EQ(with("Authorization", wrong), 401) << wrong;
  }
  EXPECT_EQ(with("X-Api-Key", ""), 401);
  EXPECT_EQ(StatusWith(access, {{"Host", "localhost"}}), 401);
  EXPECT_EQ(StatusWith(access, {{"Host", "localhost"}}, false), 200);
  const HttpRequest one{.headers = {{"X-Api-Key", "first"}}}, two{.headers = {{"X-Api-Key", "second"}}};
  EXPECT_NE(access.Scope(one), access.Scope(two));
  EXPECT_EQ(Access({}).Scope(one), "");
  EXPECT_THROW(ParseKeys("# none\n", "keys"), Error);
}

// Every route there is, without a key and with a wrong one.
TEST(Access, OnlyHealthAndThePageNeedNoKey) {
  TestApi api({}, TestApi::DefaultOptions(), {.keys = {Sha256("secret")}});
  const WebFile page{.path = "/", .content_type = "text/html", .gzip = "x", .etag = "\"1\""};
  api.router.AddFiles({&page, 1});
  int guarded = 0;
  for (const Route& route : api.router.routes()) {
    const bool open = route.path == "/health" || route.path == "/v1/health" || route.path == "/";
    for (const char* key : {"", "wrong"}) {
      HttpRequest request{
          .method = route.method, .path = route.path, .headers = {{"Host", "localhost"}, {"X-Api-Key", key}}};
      const std::optional<HttpResponse> answer = api.router.Admit(request);
      EXPECT_EQ(answer ? answer->status : 200, open ? 200 : 401) << route.path;
      guarded += !open;
    }
  }
  EXPECT_GE(guarded, 22);
  HttpRequest unknown{.method = "GET", .path = "/nothing", .headers = {{"Host", "localhost"}}};
  EXPECT_EQ(api.router.Admit(unknown)->status, 401);  // says nothing about what exists
}

TEST(Access, ThePageIsSentCompressedWithItsPolicy) {
  TestApi api;
  const WebFile page{.path = "/", .content_type = "text/html; charset=utf-8", .gzip = "zipped", .etag = "\"1\""};
  api.router.AddFiles({&page, 1});
  const HttpResponse answer = api.Ask({.method = "GET", .path = "/", .headers = {{"Accept-Encoding", "br, gzip"}}});
  EXPECT_EQ(answer.body, "zipped");
  std::string policy;
  for (const auto& header : answer.headers) {
    if (header.first == "Content-Security-Policy") policy = header.second;
  }
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
  const auto ask = [&](const char* name, const char* value) {
    return api.Ask({.method = "GET", .path = "/", .headers = {{"Accept-Encoding", "gzip"}, {name, value}}});
  };
  for (const char* known : {"\"1\"", "W/\"1\"", "\"0\", W/\"1\"", "*"}) {
    EXPECT_EQ(ask("If-None-Match", known).status, 304) << known;
  }
  for (const char* other : {"\"2\"", "W/\"0\", \"11\"", "1", ""}) {
    EXPECT_EQ(ask("If-None-Match", other).status, 200) << other;
  }
}

}  // namespace
}  // namespace octavo::server
