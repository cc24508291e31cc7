#include "octavo/server/web_files.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "octavo/base/sha256.h"
#include "octavo/base/temp_folder.h"
#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320 & (0 - (crc & 1)));
  }
  return ~crc;
}

std::string ReadSource(const std::string& path) {
  std::ifstream file(OCTAVO_SOURCE_DIR "/web/" + path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What is in the binary are the files of the source tree: digest, and the checksum and size that gzip writes last.
void CheckFiles(std::span<const WebFile> files, const std::string& folder, const std::set<std::string>& wanted) {
  std::set<std::string> paths;
  for (const WebFile& file : files) {
    paths.emplace(file.path);
    const std::string source = ReadSource(folder + (file.path == "/" ? "/index.html" : std::string(file.path)));
    ASSERT_FALSE(source.empty()) << file.path;
    EXPECT_EQ(file.etag, "\"" + Sha256Hex(source).substr(0, 32) + "\"") << file.path;
    ASSERT_GT(file.gzip.size(), 18u);
    EXPECT_EQ(file.gzip.substr(0, 3), "\x1f\x8b\x08");
    std::array<uint32_t, 2> end;
    std::memcpy(end.data(), file.gzip.data() + file.gzip.size() - 8, 8);
    EXPECT_EQ(end[0], Crc32(source)) << file.path;
    EXPECT_EQ(end[1], source.size()) << file.path;
  }
  EXPECT_EQ(paths, wanted);
}

TEST(WebFiles, AreThoseOfTheSourceTree) {
  CheckFiles(WebFiles(), "chat",
             {"/", "/chat.css", "/chat.js", "/api.js", "/markdown.js", "/messages.js", "/store.js"});
  CheckFiles(DashboardFiles(), "dashboard", {"/", "/plots.css", "/plots.js", "/dashboard.css", "/dashboard.js"});
}

// Clients that do not take gzip get the file as it was written.
TEST(WebFiles, AreUnpackedForPlainClients) {
  TestApi api;
  api.router.AddFiles(WebFiles());
  for (const WebFile& file : WebFiles()) {
    const HttpResponse plain = api.Get(std::string(file.path));
    EXPECT_EQ(plain.status, 200);
    EXPECT_EQ(plain.body, ReadSource("chat" + (file.path == "/" ? "/index.html" : std::string(file.path))));
    for (const auto& header : plain.headers) EXPECT_NE(header.first, "Content-Encoding");
  }
  const auto zipped = [&](const char* accepted) {
    const HttpResponse page = api.Ask({.method = "GET", .path = "/", .headers = {{"Accept-Encoding", accepted}}});
    return page.headers.back() == std::pair<std::string, std::string>("Content-Encoding", "gzip");
  };
  for (const char* yes : {"gzip", "br, GZIP;q=0.5", "*", "*;q=0, gzip"}) EXPECT_TRUE(zipped(yes)) << yes;
  for (const char* no : {"gzip;q=0", "gzip; q=0.000, *", "br", "", "*;q=0", "identity, xgzip"}) {
    EXPECT_FALSE(zipped(no)) << no;
  }
}

// A page that is being written is read from the disk, and nothing beside it.
TEST(WebFiles, AreReadFromAFolderWhereOneIsGiven) {
  const TempFolder folder;
  TestApi api;
  EXPECT_THROW(api.router.AddFiles(WebFiles(), folder / "no"), Error);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("index.html", "first");
  write("secret.txt", "secret");
  api.router.AddFiles(WebFiles(), folder / "");
  EXPECT_EQ(api.Get("/").body, "first");
  write("index.html", "second");
  const HttpResponse page = api.Ask({.method = "GET", .path = "/", .headers = {{"Accept-Encoding", "gzip"}}});
  EXPECT_EQ(page.body, "second");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.headers[0].first, "Content-Security-Policy");
  EXPECT_EQ(api.Get("/chat.js").status, 500);  // not there
  EXPECT_EQ(api.Get("/secret.txt").status, 404);
}

}  // namespace
}  // namespace octavo::server
