#include "octavo/checkpoint/sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error_test_support.h"
#include "octavo/base/publish.h"
#include "octavo/base/temp_folder.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

// A file with one f32 per name.
std::string File(const std::vector<std::string>& names) {
  std::string header = "{", data;
  for (const std::string& name : names) {
    if (header.size() > 1) header += ',';
    header += fmt::format("\"{}\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[{},{}]}}", name, data.size(),
                          data.size() + 4);
    data += "abcd";
  }
  header += "}";
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string ErrorOf(const std::filesystem::path& folder) {
  return ErrorText(ErrorCode::kFile, [&] { const ShardedSafetensors shards(folder); });
}

std::string IndexErrorOf(std::string_view text) {
  return ErrorText(ErrorCode::kFile, [&] { ParseShardIndex(text, "index"); });
}

constexpr char kIndex[] = R"({"metadata":{"total_size":8},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})";

TEST(Sharded, ReadsOneFileOrShards) {
  const TempFolder folder;
  PublishFile(folder / "model.safetensors", File({"a", "b"}));
  EXPECT_EQ(ShardedSafetensors(folder.path()).tensors().size(), 2u);
  PublishFile(folder / "model.safetensors.index.json", kIndex);
  PublishFile(folder / "m-1.safetensors", File({"a"}));
  EXPECT_EQ(ErrorOf(folder.path()).substr(0, 82),
            "model.safetensors.index.json lists m-2.safetensors, which is missing (1 tensor)\nin");
  PublishFile(folder / "m-2.safetensors", File({"b"}));
  const ShardedSafetensors shards(folder.path());
  EXPECT_NE(shards.Find("b"), nullptr);
  EXPECT_EQ(shards.Find("c"), nullptr);
}

TEST(Sharded, IndexAndFilesMustAgree) {
  const TempFolder folder;
  PublishFile(folder / "model.safetensors.index.json", kIndex);
  PublishFile(folder / "m-1.safetensors", File({"a", "x"}));
  PublishFile(folder / "m-2.safetensors", File({"b"}));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("tensor 'x' is not in model.safetensors.index.json"));
  PublishFile(folder / "m-1.safetensors", File({"a", "b"}));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("tensor 'b' belongs to m-2.safetensors"));
  PublishFile(folder / "m-1.safetensors", File({}));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("lists 'a' in m-1.safetensors, which does not hold it"));
}

TEST(Sharded, RefusesNamesThatLeaveTheFolder) {
  for (const char* bad : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", ".safetensors",
                          "x.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    EXPECT_THAT(IndexErrorOf(fmt::format("{{\"weight_map\":{{\"a\":\"{}\"}}}}", bad)), HasSubstr("the shard name '"))
        << bad;
  }
  EXPECT_EQ(IndexErrorOf(kIndex), "no error");
}

TEST(Sharded, RefusesBadIndexes) {
  EXPECT_THAT(IndexErrorOf(""), HasSubstr("not JSON"));
  EXPECT_THAT(IndexErrorOf("[]"), HasSubstr("no object 'weight_map'"));
  EXPECT_THAT(IndexErrorOf(R"({"weight_map":[]})"), HasSubstr("no object 'weight_map'"));
  EXPECT_THAT(IndexErrorOf(R"({"weight_map":{}})"), HasSubstr("lists no tensor"));
  EXPECT_THAT(IndexErrorOf(R"({"weight_map":{"a":1}})"), HasSubstr("the shard of 'a' is not a text"));
  EXPECT_THAT(IndexErrorOf(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"), HasSubstr("occurs twice"));
  EXPECT_THAT(IndexErrorOf(std::string(100000, '[')), HasSubstr("nested deeper"));
}

TEST(Sharded, SaysWhatIsThereInstead) {
  const TempFolder folder;
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("holds neither model.safetensors nor"));
  PublishFile(folder / "other.bin", "a vocabulary");  // no pickle
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("holds neither model.safetensors nor"));
  PublishFile(folder / "pytorch_model.bin", "x");
  EXPECT_EQ(ErrorOf(folder.path()),
            "pytorch_model.bin is a pickle; Octavo never runs code from a model file\n"
            "use the .safetensors file of the same model");
  PublishFile(folder / "manifest.ocdbt", "x");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("is an Orbax OCDBT checkpoint, which Octavo does not read"));
  EXPECT_THAT(ErrorOf(folder / "nothing"), HasSubstr("is not a folder"));
}

}  // namespace
}  // namespace octavo
