// Over sockets on loopback: what reaches a handler, what is refused, and how connections end.
#include "octavo/server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

constexpr std::string_view kGet = "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n";

// Answers with what it was asked; /stream in three pieces; /flood with 32 MiB; /never not at all; /drop forgets the
// exchange.
class EchoHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> Admit(const HttpRequest& request) override {
    ++admitted;
    if (request.path == "/no") return HttpResponse{.status = 401, .body = "no"};
    return std::nullopt;
  }
  Headers ExtraHeaders(const HttpRequest&) const override { return {{"X-Extra", "yes"}}; }
  bool IsQuick(const HttpRequest& request) const override { return request.path != "/slow"; }
  void Answer(const std::shared_ptr<Exchange>& exchange) override {
    ++asked;
    const HttpRequest& request = exchange->request();
    if (request.path == "/drop") return;
    if (request.path == "/slow" && request.body.size() > (size_t{1} << 20)) {
      std::vector<std::unique_ptr<std::string>> blocks;
      for (int i = 0; i < 400000; ++i) blocks.push_back(std::make_unique<std::string>(100, 'x'));
      kept = std::move(blocks.back());  // the last one: what is below stays with the allocator
    }
    if (request.path == "/throw") throw std::runtime_error("broken");
    if (request.path == "/never") {
      exchange->OnClosed([this, exchange] { ++closed; });
      return;
    }
    if (request.path == "/flood") {
      exchange->OnClosed([this] { ++closed; });
      exchange->Start({.content_type = "text/plain"});
      for (int i = 0; i < 32; ++i) exchange->Write(std::string(1 << 20, 'x'));
      return exchange->Finish();
    }
    if (request.path == "/stream") {
      exchange->Start({.content_type = "text/plain", .body = "one "});
      exchange->Write("two ");
      exchange->Write("three");
      return exchange->Finish();
    }
    exchange->Send({.content_type = "text/plain",
                    .body = request.method + " " + request.path + " " + request.query + " " +
                            std::to_string(request.body.size()) + " " + request.body.substr(0, 20)});
  }
  HttpResponse Refuse(int status, std::string_view reason) override {
    return {.status = status, .content_type = "text/plain", .body = std::string(reason)};
  }
  std::atomic<int> admitted{0}, asked{0}, closed{0};
  std::unique_ptr<std::string> kept;
};

// The status of the one answer to `text`; 0 when the connection ends without.
int StatusOf(int port, std::string_view text) {
  RawClient client(port);
  client.Send(text);
  const std::string answer = client.ReadUntil("\r\n");
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9)) : 0;
}

TEST(Http, AHeaderCannotBeginAnother) {
  const HttpResponse response{.headers = {{"X-Good", "1"}, {"X-Bad", "1\r\nSet-Cookie: a=b"}}};
  const std::string head = ResponseHead(response, {{"X-Extra", "2\n"}}, 0, false, true);
  EXPECT_NE(head.find("\r\nX-Good: 1\r\n"), std::string::npos) << head;
  EXPECT_EQ(head.find("X-Bad"), std::string::npos);
  EXPECT_EQ(head.find("X-Extra"), std::string::npos);
  EXPECT_EQ(DecodePercent("/a%2Fb%20"), "/a/b ");
  for (const char* text : {"%", "%1", "%zz", "%00", "a%2"}) EXPECT_FALSE(DecodePercent(text).has_value()) << text;
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nGET /a b x=1 0 ")) << answer;
    EXPECT_NE(answer.find("X-Extra: yes\r\n"), std::string::npos);
    EXPECT_NE(answer.find("Connection: keep-alive\r\n"), std::string::npos);
  }
  client.Send(PostText("/slow", "0123456789"));  // by a worker
  EXPECT_TRUE(client.ReadAnswer().ends_with("POST /slow  10 0123456789"));
  client.Send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("POST /x  5 abcde"));
  client.Send(PostText("/x", "abc", "Content-Encoding: identity\r\n"));
  EXPECT_TRUE(client.ReadAnswer().ends_with("POST /x  3 abc"));
  client.Send("GET http://A:1/x?y=1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("GET /x y=1 0 "));
  client.Send("GET HTTP://a?y=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("GET / y=1 0 "));
  client.Send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
  client.Send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.ReadAll().ends_with("GET /last  0 "));
}

TEST(HttpServer, RequestsInOnePacketAreAnsweredInOrder) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port());
  client.Send(
      "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("GET /1  0 "));
  EXPECT_TRUE(client.ReadAnswer().ends_with("GET /slow  0 "));
  EXPECT_TRUE(client.ReadAnswer().ends_with("GET /3  0 "));
}

TEST(HttpServer, StreamsInChunksAndWithoutForOldClients) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port());
  client.Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_NE(answer.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n")) << answer;
  RawClient old(server->port());
  old.Send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string plain = old.ReadAll();
  EXPECT_EQ(plain.find("chunked"), std::string::npos);
  EXPECT_TRUE(plain.ends_with("\r\n\r\none two three")) << plain;
}

TEST(HttpServer, MalformedAndSmuggledRequestsAreRefused) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  const auto with = [](std::string_view headers, std::string_view body = "") {
    return fmt::format("POST /x HTTP/1.1\r\nHost: a\r\n{}\r\n{}", headers, body);
  };
  const std::pair<std::string, int> cases[] = {
      {with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"), 400},
      {with("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400},
      {with("Content-Length: +3\r\n", "abc"), 400},
      {with("Content-Length: -1\r\n", "abc"), 400},
      {with("Content-Length: 99999999999999999999999\r\n"), 400},
      {with("Content-Length: 0x3\r\n", "abc"), 400},
      {with("Transfer-Encoding: gzip\r\n", "0\r\n\r\n"), 400},
      {with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 400},
      {with("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\n", "-2\r\nabc\r\n0\r\n\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n0\r\n\r\n"), 400},
      {with("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"), 400},
      {with("Content-Length: 16777217\r\n"), 413},
      {with("Transfer-Encoding: chunked\r\n", "1000001\r\n"), 413},
      {with("Expect: a-miracle\r\nContent-Length: 3\r\n", "abc"), 417},
      {with("Name with blanks: 1\r\n"), 400},
      {with("NoColon\r\n"), 400},
      {with(std::string("X: a\0b\r\n", 8)), 400},
      {with("Host: b\r\n"), 400},
      {with("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400},
      {with("Origin: http://a\r\nX: 1\r\norigin: http://b\r\n"), 400},
      {"GET /x HTTP/1.1\r\n\r\n", 400},
      {"GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n", 400},
      {"GET http://a/x HTTP/1.0\r\n\r\n", 400},
      {"GET http://a@b/x HTTP/1.1\r\nHost: b\r\n\r\n", 400},
      {"GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {with("Content-Length: 3, 3\r\n", "abc"), 400},
      {with("Content-Encoding: gzip\r\nContent-Length: 3\r\n", "abc"), 415},
      {with("Content-Encoding: identity\r\nContent-Encoding: br\r\nContent-Length: 3\r\n", "abc"), 415},
      {"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /x HTTP/9.9\r\nHost: a\r\n\r\n", 400},
      {"GET /x\nHost: a\n\n", 400},
      {"\x16\x03\x01\x02\x01 hello tls\r\n\r\n", 400},
      {"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {with("X-Long: " + std::string(17000, 'x') + "\r\n"), 431},
      {"GET /" + std::string(20000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
      {"GET /no HTTP/1.1\r\nHost: a\r\n\r\n", 401},
  };
  for (const auto& [text, status] : cases) {
    EXPECT_EQ(StatusOf(server->port(), text), status) << text.substr(0, 200);
  }
  std::string many = "GET /x HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(StatusOf(server->port(), many + "\r\n"), 431);
  EXPECT_EQ(handler.asked, 0);
  EXPECT_EQ(StatusOf(server->port(), kGet), 200);
}

TEST(HttpServer, TheBodyOfARefusedRequestIsNotRead) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port());
  client.Send("POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
  const std::string answer = client.ReadAnswer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// What a worker took for a large request goes back to the system.
TEST(HttpServer, ALargeRequestLeavesNoMemoryBehind) {
  EchoHandler handler;
  HttpOptions options = AnyPort();
  options.workers = 1;
  TestServer server(handler, options);
  RawClient client(server->port());
  const size_t before = ResidentBytes();
  client.Send(PostText("/slow", std::string(size_t{2} << 20, 'x')));
  EXPECT_TRUE(client.ReadAnswer().starts_with("HTTP/1.1 200"));
  client.Send(PostText("/slow", "x"));  // the worker is done with the first
  EXPECT_TRUE(client.ReadAnswer().starts_with("HTTP/1.1 200"));
  EXPECT_LT(ResidentBytes(), before + (size_t{24} << 20));
}
#endif

TEST(HttpServer, SaysContinueToThoseWhoWait) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port());
  client.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_TRUE(client.ReadAnswer().ends_with("POST /x  3 abc"));
}

TEST(HttpServer, AHandlerThatThrowsOrForgetsGives500) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  EXPECT_EQ(StatusOf(server->port(), "GET /throw HTTP/1.1\r\nHost: a\r\n\r\n"), 500);
  EXPECT_EQ(StatusOf(server->port(), "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n"), 500);
  EXPECT_EQ(StatusOf(server->port(), kGet), 200);
}

TEST(HttpServer, SlowRequestsEndWith408AndOthersDoNotNotice) {
  EchoHandler handler;
  HttpOptions options = AnyPort();
  options.request_seconds = 0.3;
  TestServer server(handler, options);
  RawClient in_header(server->port()), in_body(server->port()), silent(server->port());
  in_header.Send("GET /x HTTP/1.1\r\nHo");
  in_body.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(StatusOf(server->port(), kGet), 200);
  EXPECT_TRUE(in_header.ReadAll().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(in_body.ReadAll().starts_with("HTTP/1.1 408"));
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST(HttpServer, AClientThatLeavesIsNoticed) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  {
    RawClient client(server->port());
    client.Send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    while (handler.asked == 0) std::this_thread::yield();
  }
  while (handler.closed == 0) std::this_thread::yield();
  while (server->connections() > 0) std::this_thread::yield();
  EXPECT_EQ(handler.closed, 1);
}

// A client that asks and does not read: cut after a time, or when too much waits for it. One that reads gets it all.
TEST(HttpServer, ClientsThatDoNotReadAreCut) {
  EchoHandler handler;
  const std::string flood = "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n";
  HttpOptions options = AnyPort();
  options.stalled_seconds = 1;  // long enough for a reader on a busy machine
  {
    TestServer server(handler, options);
    RawClient stalled(server->port()), reader(server->port());
    stalled.Send(flood);
    reader.Send("GET /flood HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(reader.ReadAll().ends_with("x\r\n0\r\n\r\n"));
    while (handler.closed == 0) std::this_thread::yield();
    EXPECT_LT(stalled.ReadAll().size(), size_t{32} << 20);
    EXPECT_EQ(handler.closed, 1);
  }
  options.stalled_seconds = 30;
  options.unsent_bytes = size_t{8} << 20;
  TestServer server(handler, options);
  RawClient stalled(server->port());
  stalled.Send(flood);
  while (handler.closed == 1) std::this_thread::yield();
  EXPECT_EQ(handler.closed, 2);
}

TEST(HttpServer, TooManyConnectionsAreTurnedAway) {
  EchoHandler handler;
  HttpOptions options = AnyPort();
  options.connections_from_loopback = 4;
  TestServer server(handler, options);
  std::vector<std::unique_ptr<RawClient>> open;
  for (int i = 0; i < 4; ++i) {
    open.push_back(std::make_unique<RawClient>(server->port()));
    open.back()->Send(kGet);
    EXPECT_TRUE(open.back()->ReadAnswer().starts_with("HTTP/1.1 200"));
  }
  EXPECT_EQ(StatusOf(server->port(), ""), 429);
  open.pop_back();
  while (server->connections() > 3) std::this_thread::yield();
  EXPECT_EQ(StatusOf(server->port(), kGet), 200);
}

// Large bodies share a bound: over it the largest is refused, small ones pass.
TEST(HttpServer, BodiesShareABound) {
  EchoHandler handler;
  HttpOptions options = AnyPort();
  options.held_bytes = size_t{1} << 20;
  TestServer server(handler, options);
  const auto begin = [](size_t announced, size_t sent) {
    return fmt::format("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}", announced,
                       std::string(sent, 'x'));
  };
  RawClient large(server->port()), larger(server->port());
  large.Send(begin(500000, 400000));
  larger.Send(begin(900000, 700000));
  EXPECT_TRUE(larger.ReadAnswer().starts_with("HTTP/1.1 429"));
  EXPECT_EQ(StatusOf(server->port(), PostText("/x", "small")), 200);
  large.Send(std::string(100000, 'x'));
  EXPECT_TRUE(large.ReadAnswer().starts_with("HTTP/1.1 200"));
  // What was held is given back, by answers and by clients that leave.
  larger.Close();
  for (int i = 0; i < 8; ++i) {
    const int before = handler.admitted;
    RawClient leaves(server->port());
    leaves.Send(begin(900000, 600000));
    while (handler.admitted == before) std::this_thread::yield();
    leaves.Close();
    while (server->connections() > 1) std::this_thread::yield();
    large.Send(begin(900000, 900000));
    EXPECT_TRUE(large.ReadAnswer().starts_with("HTTP/1.1 200"));
  }
}

// Clients that dribble, or are idle, make room for one that comes with a whole request; clients that wait for their
// answer are never cut for it.
TEST(HttpServer, ThoseWhoDribbleCannotKeepOthersOut) {
  EchoHandler handler;
  HttpOptions options = AnyPort();
  options.connections_from_loopback = 4;
  options.patience_seconds = 0.05;
  TestServer server(handler, options);
  RawClient served(server->port());
  served.Send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_unique<RawClient>(server->port()));
    slow.back()->Send("GET /x HT");
  }
  while (server->connections() < 4 || handler.asked == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(StatusOf(server->port(), kGet), 200);
  EXPECT_EQ(slow[0]->ReadAll(), "");  // the one that was there longest
  EXPECT_EQ(handler.closed, 0);
}

TEST(HttpServer, AnswersOfAServerThatEndsEndTheirConnection) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient client(server->port()), next(server->port());
  client.Send(kGet);
  EXPECT_NE(client.ReadAnswer().find("Connection: keep-alive\r\n"), std::string::npos);
  server->EndWithNextAnswers();
  client.Send(kGet);
  EXPECT_NE(client.ReadAll().find("Connection: close\r\n"), std::string::npos);
  next.Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(next.ReadAll().find("Connection: close\r\n"), std::string::npos);
}

TEST(HttpServer, ClosingFinishesWhatHasBegun) {
  EchoHandler handler;
  TestServer server(handler, AnyPort());
  RawClient idle(server->port()), busy(server->port());
  idle.Send(kGet);
  EXPECT_TRUE(idle.ReadAnswer().starts_with("HTTP/1.1 200"));
  busy.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
  while (handler.admitted < 2) std::this_thread::yield();
  server->Close();
  EXPECT_EQ(idle.ReadAll(), "");
  busy.Send("cde");
  const std::string answer = busy.ReadAll();
  EXPECT_TRUE(answer.ends_with("POST /x  5 abcde")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  busy.Close();
  server.Join();
}

TEST(HttpServer, PortTakenAndBadHostsAreErrors) {
  EchoHandler handler;
  HttpServer first(AnyPort(), handler);
  try {
    HttpServer second({.port = first.port()}, handler);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJob);
    EXPECT_EQ(error.message(), fmt::format("port {} is in use", first.port()));
    EXPECT_EQ(error.hint(), fmt::format("try port={}, or port=0 for any free one", first.port() + 1));
  }
  EXPECT_THROW(HttpServer({.host = "example.org"}, handler), Error);
  EXPECT_TRUE(IsLocalHost("127.0.0.1") && IsLocalHost("localhost") && IsLocalHost("/run/x.sock") && IsLocalHost("::1"));
  EXPECT_FALSE(IsLocalHost("0.0.0.0") || IsLocalHost("::") || IsLocalHost("192.168.0.1"));
}

}  // namespace
}  // namespace octavo::server
