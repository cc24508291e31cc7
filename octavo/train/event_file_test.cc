#include "octavo/train/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "octavo/base/temp_folder.h"
#include "octavo/train/crc32c.h"

namespace octavo::train {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(c));
    hex += two;
  }
  return hex;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

// The bytes that the protocol's own library makes of the same messages.
TEST(EventFile, BytesOfEvents) {
  EXPECT_EQ(Hex(VersionEvent(1.0)), "09000000000000f03f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(Hex(ScalarEvent(2.0, 300, {{"a/b", 0.5}})),
            "090000000000000040"              // wall_time
            "10ac02"                          // step 300
            "2a0c0a0a0a03612f62150000003f");  // summary { value { tag, simple_value } }
  EXPECT_EQ(Hex(RestartEvent(1.0, 5)), "09000000000000f03f10053a020801");
}

TEST(EventFile, RecordsAreFramed) {
  const TempFolder folder;
  std::filesystem::path path;
  {
    EventFile file(folder / "tensorboard", 7);
    file.Add(7, {{"learning/loss", 3.25}, {"perf/step_time_seconds", 0.5}});
    path = file.path();
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents."));
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = text.str();
  size_t at = 0;
  std::vector<std::string> events;
  while (at < bytes.size()) {
    uint64_t length;
    uint32_t length_crc, data_crc;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&length_crc, bytes.data() + at + 8, 4);
    ASSERT_EQ(length_crc, MaskedCrc32c(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    std::memcpy(&data_crc, bytes.data() + at + 12 + length, 4);
    ASSERT_EQ(data_crc, MaskedCrc32c(events.back()));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 3u);
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(events[2].find("learning/loss"), std::string::npos);
}

}  // namespace
}  // namespace octavo::train
