#include "bench/soak_clients.h"

#include <memory>
#include <thread>

namespace octavo::bench {
namespace {

constexpr std::string_view kPath = "/v1/completions";
constexpr std::string_view kShort = R"({"prompt":"abcdef","max_tokens":24,"ignore_eos":true})";
constexpr std::string_view kStream = R"({"prompt":"abcdef","max_tokens":24,"ignore_eos":true,"stream":true})";
constexpr std::string_view kLong = R"({"prompt":"abcdef","max_tokens":200,"ignore_eos":true,"stream":true})";
constexpr std::string_view kPost =
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

void Pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Sends pieces until the server has had enough.
void SendForever(HttpClient& client, std::string_view first, const std::string& piece, size_t most) {
  if (!client.Send(first)) return;
  for (size_t sent = 0; sent < most && client.Send(piece); sent += piece.size()) {
  }
}

}  // namespace

void Tally::Add(int status) {
  const std::lock_guard lock(mutex);
  ++statuses[status];
}

void Tally::AddAttack(const std::string& kind, int status) {
  const std::lock_guard lock(mutex);
  ++attacks[kind][status];
}

void AskHonestly(HttpClient& client, bool stream, Tally& tally) {
  const double begin = Now();
  const HttpAnswer answer = client.Post(kPath, stream ? kStream : kShort);
  const double seconds = Now() - begin;
  tally.Add(answer.status);
  if (answer.status == 200) {
    const bool whole = stream ? answer.body.ends_with("data: [DONE]\n\n")
                              : answer.body.find("\"finish_reason\":\"length\"") != std::string::npos;
    const std::lock_guard lock(tally.mutex);
    tally.seconds.push_back(seconds);
    tally.cut_short += !whole;
    return;
  }
  if (answer.status == 429 && answer.head.find("Retry-After: ") == std::string::npos) {
    const std::lock_guard lock(tally.mutex);
    ++tally.never;
  }
  Pause(0.02);
}

void AskAndLeave(HttpClient& client, std::mt19937& random, Tally& tally) {
  if (random() % 4 == 0) {
    const std::string whole = HttpClient::PostText(kPath, kShort);
    client.Send(whole.substr(0, 10 + random() % (whole.size() - 10)));
  } else {
    int pieces = static_cast<int>(random() % 12);
    client.Post(kPath, kLong, [&](std::string_view) { return pieces-- > 0; });
  }
  client.Close();
  const std::lock_guard lock(tally.mutex);
  ++tally.left;
}

void SendRubbish(HttpClient& client, unsigned kind, Tally& tally) {
  const std::string bodies[kRubbishKinds] = {
      std::string(100000, '['),
      R"({"prompt":"a","n":1000000,"max_tokens":-1})",
      R"({"prompt":"a","max_tokens":9223372036854775807})",
      R"({"prompt":[1e308,2147483648]})",
      R"({"prompt":)",
      R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"pattern":"^+"}}}})",
      R"({"prompt":"a","logit_bias":{"-1":1}})",
      R"({"prompt":"a","response_format":{"type":"json_object","schema":)" + std::string(60, '[') + "}}",
      "\xff\xfe\x00{}",
  };
  tally.Add(client.Post(kPath, bodies[kind]).status);
}

void Attack(HttpClient& client, unsigned kind, Tally& tally) {
  const std::string post(kPost);
  std::string name;
  switch (kind) {
    case 0:
      name = "endless chunked body";
      SendForever(client, post + "Transfer-Encoding: chunked\r\n\r\n",
                  fmt::format("100000\r\n{}\r\n", std::string(1 << 20, 'x')), size_t{200} << 20);
      break;
    case 1:
      name = "endless header";
      SendForever(client, post + "X: ", std::string(1 << 16, 'x'), size_t{125} << 20);
      break;
    case 2: {
      name = "500,000 headers";
      std::string some;
      for (int i = 0; i < 1000; ++i) some += "A: 1\r\n";
      SendForever(client, post, some, 500000 * 6);
      break;
    }
    case 3:
      name = "chunk of -2 bytes";
      SendForever(client, post + "Transfer-Encoding: chunked\r\n\r\n-2\r\n", std::string(1 << 16, 'x'),
                  size_t{1} << 20);
      break;
    case 4:
      name = "length and chunks";
      client.Send(post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
      break;
    case 5:
      name = "99,999,999 bytes announced";
      client.Send(post + "Content-Length: 99999999\r\n\r\n");
      break;
    default:
      name = "no answer is read";  // a pipeline of requests, and the client leaves
      for (int i = 0; i < 50; ++i) client.Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
      client.Close();
      return tally.AddAttack(name, 0);
  }
  tally.AddAttack(name, client.Read().status);
  client.Close();
}

int64_t SendSlowly(int port, int count, double until) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port, 2 + i % 16));
    clients.back()->Connect();
  }
  while (Now() < until) {
    for (const auto& client : clients) {
      if (!client->connected() || !client->Send("G")) client->Connect();
    }
    Pause(1);
  }
  int64_t open = 0;
  for (const auto& client : clients) open += client->Send("G") ? 1 : 0;
  return open;
}

void SendFatly(int port, int count, double until, Tally& tally) {
  const std::string piece(size_t{16} << 20, 'x');
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < count && Now() < until; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port, 2 + i % 16));
    clients.back()->Send(fmt::format("{}Content-Length: {}\r\n\r\n", kPost, piece.size()));
    clients.back()->Send(std::string_view(piece).substr(1));
  }
  while (Now() < until) Pause(0.1);
  for (const auto& client : clients)
    tally.AddAttack("16 MiB but for a byte", client->Peek() ? client->Read().status : 1);
}

}  // namespace octavo::bench
