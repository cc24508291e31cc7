// What real clients sent, byte by byte as they sent it (tests/clients), against the whole server: 200 for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "octavo/server/serve.h"
#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

TEST(ClientsReplay, EveryRecordedRequestIsAnswered) {
  const auto tokenizer = text::MakeByteTokenizer();
  engine::MockService service(*tokenizer);
  ServeOptions options;
  options.http.port = 0;
  options.access.keys = {Sha256("test-key")};
  Server server(std::move(options));
  server.Open(service, TestApi::DefaultOptions());
  int replayed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(OCTAVO_SOURCE_DIR "/tests/clients")) {
    if (entry.path().extension() != ".http") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string request((std::istreambuf_iterator<char>(file)), {});
    RawClient client(server.port());
    client.Send(request);
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK")) << entry.path() << "\n" << head << client.ReadUntil("}");
    EXPECT_EQ(head.find("x-octavo-ignored: messages"), std::string::npos);
    if (head.find("event-stream") != std::string::npos) {
      EXPECT_TRUE(client.ReadUntil("0\r\n\r\n").ends_with("data: [DONE]\n\n\r\n0\r\n\r\n")) << entry.path();
    }
    ++replayed;
  }
  EXPECT_GE(replayed, 12);
  server.Drain();
  EXPECT_TRUE(server.Run());
}

}  // namespace
}  // namespace octavo::server
