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
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080", "127.1.2.3"}) {
    EXPECT_EQ(StatusWith(access, {{"Host", host}}), 200) << host;
  }
  for (const char* host : {"example.org", "localhost.example.org", "[::2]:8080", "", "0.0.0.0", "evil:127.0.0.1",
                           "127.0.0.1.example.org", "127.example.org:8080", "127.1", "unix", "[127.0.0.1"}) {
    EXPECT_EQ(StatusWith(access, {{"Host", host}}), 403) << host;
  }
  EXPECT_EQ(StatusWith(Access({.check_host = false}), {{"Host", "example.org"}}), 200);
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
  EXPECT_GE(guarded, 18);
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
  EXPECT_EQ(api.Ask({.method = "GET", .path = "/", .headers = {{"If-None-Match", "\"1\""}}}).status, 304);
}

}  // namespace
}  // namespace octavo::server
