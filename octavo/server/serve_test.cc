// The whole server over sockets: streams, clients that leave, draining, load
// with faults.
#include "octavo/server/serve.h"

#include <gtest/gtest.h>

#include <random>

#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

class RunningServer {
 public:
  explicit RunningServer(engine::MockOptions mock = {}, ServeOptions options = {})
      : tokenizer_(text::MakeByteTokenizer()), service_(*tokenizer_, std::move(mock)) {
    options.http.port = 0;
    server_ = std::make_unique<Server>(std::move(options));
    server_->Open(service_, TestApi::DefaultOptions());
    thread_ = std::thread([this] { complete_ = server_->Run(); });
  }
  ~RunningServer() { End(); }
  bool End() {
    if (!thread_.joinable()) return complete_;
    server_->Drain();
    thread_.join();
    return complete_;
  }
  int port() const { return server_->port(); }
  engine::MockService& service() { return service_; }
  Server& server() { return *server_; }
  bool Quiet() const {
    const engine::ServiceStats stats = service_.Stats();
    return stats.running + stats.waiting == 0;
  }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
  engine::MockService service_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  bool complete_ = false;
};

TEST(Server, StreamsOverASocket) {
  RunningServer server;
  RawClient client(server.port());
  client.Send(PostText("/v1/completions", R"({"prompt":"abc","max_tokens":30,"stream":true})"));
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(answer.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_NE(answer.find("data: [DONE]\n\n"), std::string::npos);
  // The connection is still good.
  client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("{\"status\":\"ok\"}\n"));
  EXPECT_TRUE(server.End());
}

TEST(Server, ClientsThatLeaveFreeTheirSlots) {
  engine::MockOptions mock;
  mock.slots = 4;
  mock.step_seconds = 0.0005;
  RunningServer server(mock);
  for (int i = 0; i < 40; ++i) {
    RawClient client(server.port());
    client.Send(PostText("/v1/completions", R"({"prompt":"abc","max_tokens":4000,"stream":true})"));
    if (i % 2 == 0) client.ReadUntil("data: ");
  }
  while (!server.Quiet()) std::this_thread::yield();
  EXPECT_EQ(server.service().Stats().finished, 0);
  EXPECT_TRUE(server.End());
}

TEST(Server, DrainingLosesNothing) {
  engine::MockOptions mock;
  mock.slots = 2;
  mock.step_seconds = 0.001;
  RunningServer server(mock);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send(PostText("/v1/completions", R"({"prompt":"abc","max_tokens":40})"));
  }
  while (server.service().Stats().running + server.service().Stats().waiting < 6) std::this_thread::yield();
  RawClient late(server.port());
  late.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(late.ReadAnswer().starts_with("HTTP/1.1 200"));
  server.server().Drain();
  late.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string health = late.ReadAnswer();
  EXPECT_TRUE(health.empty() || health.starts_with("HTTP/1.1 503")) << health;
  EXPECT_TRUE(health.empty() || health.find("Connection: close") != std::string::npos) << health;
  int finished = 0;
  for (const auto& client : clients) {
    const std::string answer = client->ReadAnswer();
    const bool good = answer.starts_with("HTTP/1.1 200");
    finished += good;
    EXPECT_TRUE(good || answer.starts_with("HTTP/1.1 503")) << answer;
  }
  EXPECT_GE(finished, 2);
  EXPECT_TRUE(server.End());
}

TEST(Server, NeedsAKeyOutsideOfThisMachine) {
  try {
    Server server({.http = {.host = "0.0.0.0", .port = 0}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.message(), "host=0.0.0.0 needs an API key");
    EXPECT_EQ(error.hint(), "set OCTAVO_API_KEY or api_key_file=F; or host=127.0.0.1");
  }
}

TEST(Server, AnswersOnALocalSocket) {
  const std::string path = testing::TempDir() + "octavo-server-test.sock";
  const auto tokenizer = text::MakeByteTokenizer();
  engine::MockService service(*tokenizer);
  Server server({.http = {.host = path}, .access = {.check_host = false}});
  EXPECT_EQ(server.url(), "unix:" + path);
  EXPECT_THROW(Server({.http = {.host = path}}), Error);  // in use
  server.Open(service, {});
  server.Drain();
  EXPECT_TRUE(server.Run());
}

// What a client gets that comes before the model is loaded, and afterwards on the same connection.
TEST(Server, TellsEarlyClientsToWait) {
  const auto tokenizer = text::MakeByteTokenizer();
  engine::MockService service(*tokenizer);
  Server server({.http = {.port = 0}, .access = {.keys = ParseKeys("secret", "test")}});
  RawClient client(server.port());
  const auto get = [&](const char* path, const char* more) {
    client.Send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more));
    return client.ReadAnswer();
  };
  const char* key = "Authorization: Bearer secret\r\n";
  for (const std::string& answer : {get("/health", ""), get("/v1/health", ""), get("/v1/models", key)}) {
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
    EXPECT_NE(answer.find("Retry-After: 2\r\n"), std::string::npos);
    EXPECT_NE(answer.find(R"("type":"unavailable_error","param":null,"code":"loading")"), std::string::npos) << answer;
  }
  EXPECT_TRUE(get("/v1/models", "").starts_with("HTTP/1.1 401"));
  server.Open(service, {});
  EXPECT_TRUE(get("/health", "").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(get("/v1/models", key).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(get("/nothing", key).starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(get("/metrics", "").starts_with("HTTP/1.1 401"));
  client.Close();
  server.Drain();
  EXPECT_TRUE(server.Run());
}

TEST(Server, EndsWithoutHavingBeenOpened) {
  const Server server({.http = {.port = 0}});
  EXPECT_GT(server.port(), 0);
}

// Four times the capacity, with clients that leave, stall and send rubbish:
// nothing but 200, 429 and 4xx, no slot lost.
TEST(Server, LoadWithFaults) {
  engine::MockOptions mock;
  mock.slots = 4;
  mock.max_queue = 4;
  mock.step_seconds = 0.0002;
  RunningServer server(mock);
  std::atomic<int> good{0}, busy{0}, bad{0}, other{0};
  const auto client = [&](int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int i = 0; i < 25; ++i) {
      RawClient one(server.port());
      const unsigned kind = random() % 6;
      if (kind == 0) {  // leaves in the middle
        one.Send(PostText("/v1/completions", R"({"prompt":"abc","max_tokens":200,"stream":true})"));
        if (random() % 2 == 0) one.ReadUntil("\r\n\r\n");
        continue;
      }
      if (kind == 1) {  // leaves before the request is whole
        one.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le");
        continue;
      }
      if (kind == 2) {
        one.Send(PostText("/v1/completions", R"({"prompt":)"));
      } else if (kind == 3) {
        one.Send("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20000, 'x') + "\r\n\r\n");
      } else {
        one.Send(PostText("/v1/completions", fmt::format(R"({{"prompt":"abc","max_tokens":20,"stream":{}}})",
                                                         kind == 4 ? "true" : "false")));
      }
      const std::string head = one.ReadUntil("\r\n\r\n");
      const int status = head.size() > 12 ? std::stoi(head.substr(9, 3)) : 0;
      const std::string body = kind == 4 && status == 200 ? one.ReadUntil("data: [DONE]\n\n") : "";
      if (status == 200 && (kind != 4 || body.ends_with("[DONE]\n\n"))) {
        ++good;
      } else if (status == 429) {
        ++busy;
      } else if (status == 400 || status == 431) {
        ++bad;
      } else {
        ++other;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) threads.emplace_back(client, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(good, 0);
  EXPECT_GT(bad, 0);
  EXPECT_EQ(other, 0);
  while (!server.Quiet()) std::this_thread::yield();
  RawClient last(server.port());
  last.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(last.ReadAnswer().starts_with("HTTP/1.1 200"));
  last.Close();
  EXPECT_TRUE(server.End());
}

}  // namespace
}  // namespace octavo::server
