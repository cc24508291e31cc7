#include "octavo/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(const std::string& header, const std::string& data, uint64_t claimed) {
  return std::string(reinterpret_cast<const char*>(&claimed), 8) + header + data;
}

// The error of a file with this content, by the parser alone; the file itself has its own test below.
std::string ErrorOf(const std::string& content) {
  try {
    ParseSafetensors(std::as_bytes(std::span(content)), "t.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    EXPECT_THAT(error.what(), HasSubstr("t.safetensors"));
    return error.what();
  }
  return "no error";
}
std::string ErrorOf(const std::string& header, const std::string& data) {
  return ErrorOf(Bytes(header, data, header.size()));
}
// The error of a file with one tensor 'a' of this entry, and 8 bytes of data.
std::string EntryError(const std::string& entry) { return ErrorOf(R"({"a":)" + entry + "}", "12345678"); }

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header =
      R"({"z":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"k":"v"},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[3,11]},"s":{"dtype":"BF16","shape":[],"data_offsets":[11,13]},)"
      R"("e":{"dtype":"I64","shape":[0,5],"data_offsets":[13,13]},"f":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[13,15]},)"
      R"("q":{"dtype":"F4","shape":[2,2],"data_offsets":[15,17]}}   )";
  const std::string data = std::string("\1\2\3\0\0\x80\x3f\0\0\0\x40\x80\x3f\x38\x40\x21\x43", 17);
  const TempFolder folder;
  std::ofstream(folder / "t.safetensors", std::ios::binary) << Bytes(header, data, header.size());
  const SafetensorsFile file(folder / "t.safetensors");
  ASSERT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.tensors()[0].name, "z");
  EXPECT_THAT(file.At("z").CopyAs<uint8_t>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(file.At("a").CopyAs<float>(), ElementsAre(1.0f, 2.0f));  // at an odd address
  EXPECT_THAT(file.At("a").shape, ElementsAre(1, 2));
  EXPECT_EQ(file.At("s").count, 1);
  EXPECT_EQ(file.At("s").dtype, DType::kBF16);
  EXPECT_EQ(file.At("e").count, 0);
  EXPECT_TRUE(file.At("e").bytes.empty());
  EXPECT_EQ(file.At("f").format, Format::kF8E4M3FN);
  EXPECT_EQ(file.At("f").dtype, DType::kU8);
  EXPECT_FALSE(file.At("f").packed);
  EXPECT_EQ(file.At("q").format, Format::kF4E2M1FN);
  EXPECT_TRUE(file.At("q").packed);
  EXPECT_EQ(file.At("q").count, 4);
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.Find("b"), nullptr);
  EXPECT_THROW(file.At("b"), Error);
  EXPECT_THROW(SafetensorsFile(folder / "none.safetensors"), Error);
}

TEST(Safetensors, NoTensorsAtAll) {
  EXPECT_EQ(ErrorOf("{}", ""), "no error");
  EXPECT_THAT(ErrorOf("{}", "x"), HasSubstr("bytes 0 to 1 at the end belong to no tensor"));
}

TEST(Safetensors, AFileCutShortAnywhereIsAnError) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string whole = Bytes(header, "12345678", header.size());
  EXPECT_EQ(ErrorOf(whole), "no error");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(ErrorOf(whole.substr(0, length)), "no error") << length;
  }
  EXPECT_THAT(ErrorOf(whole.substr(0, 5)), HasSubstr("5 bytes are too few"));
  EXPECT_THAT(ErrorOf(whole.substr(0, 30)), HasSubstr("the file is cut short"));
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)),
              HasSubstr("tensor 'a': its data ends at byte 8, the file has 7"));
}

TEST(Safetensors, AHugeHeaderIsRefusedBeforeItIsRead) {
  EXPECT_THAT(ErrorOf(Bytes("{}", "", uint64_t{1} << 62)), HasSubstr("the header claims 4611686018427387904 bytes"));
  EXPECT_THAT(ErrorOf(Bytes("{}", "", ~uint64_t{0})), HasSubstr("at most 100000000"));
  EXPECT_THAT(ErrorOf(Bytes("{}", "", ~uint64_t{0} - 7)), HasSubstr("at most 100000000"));
}

TEST(Safetensors, BadJson) {
  EXPECT_THAT(ErrorOf("", ""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(ErrorOf(" {}", ""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(ErrorOf("{\n \"a\":", ""), HasSubstr("header: not JSON at line 2"));
  EXPECT_THAT(ErrorOf("{} {}", ""), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf("{\"\xff\":1}", ""), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf("{\"a\":NaN}", ""), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"a":{},"a":{}})", ""), HasSubstr("the key 'a' occurs twice"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x"),
              HasSubstr("the key 'dtype' occurs twice"));
  EXPECT_THAT(ErrorOf("{\"a\":" + std::string(1000000, '['), ""), HasSubstr("nested deeper than 3"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "x"), HasSubstr("deeper than 3"));
}

TEST(Safetensors, BadEntries) {
  EXPECT_THAT(EntryError("3"), HasSubstr("tensor 'a': its entry is not an object"));
  EXPECT_THAT(EntryError("{}"), HasSubstr("tensor 'a': no field 'dtype'"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","data_offsets":[0,8]})"), HasSubstr("no field 'shape'"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[2]})"), HasSubstr("no field 'data_offsets'"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), HasSubstr("unknown field 'x'"));
  EXPECT_THAT(EntryError(R"({"dtype":"C64","shape":[1],"data_offsets":[0,8]})"), HasSubstr("unknown dtype 'C64'"));
  EXPECT_THAT(EntryError(R"({"dtype":7,"shape":[1],"data_offsets":[0,8]})"), HasSubstr("dtype is not a string"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), HasSubstr("shape is not a list"));
  for (const char* number : {"-2", "2.0", "\"2\"", "null", "2e0", "true"}) {
    EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[)" + std::string(number) + R"(],"data_offsets":[0,8]})"),
                HasSubstr("a dimension of its shape is not a whole number"))
        << number;
  }
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
              HasSubstr("18446744073709551615, which is too large"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]})"),
              HasSubstr("not a whole number"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"), HasSubstr("has 3 numbers"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), HasSubstr("before its begin"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"), HasSubstr("the file has 8 bytes"));
  EXPECT_THAT(EntryError(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"), HasSubstr("needs 4 bytes"));
  EXPECT_THAT(EntryError(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})"), HasSubstr("do not fill whole bytes"));
  EXPECT_THAT(ErrorOf(R"({"__metadata__":{"a":1}})", ""), HasSubstr("__metadata__ 'a' is not a string"));
  EXPECT_THAT(ErrorOf(R"({"__metadata__":3})", ""), HasSubstr("__metadata__ is not an object"));
}

TEST(Safetensors, ShapesThatOverflow) {
  for (const char* shape : {"1152921504606846976", "1073741824,1073741824", "4294967296,4294967296,0",
                            "9223372036854775807", "4611686018427387904,2"}) {
    EXPECT_THAT(EntryError(R"({"dtype":"F64","shape":[)" + std::string(shape) + R"(],"data_offsets":[0,8]})"),
                HasSubstr("too many elements"))
        << shape;
  }
  EXPECT_THAT(EntryError(R"({"dtype":"F64","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]})"),
              HasSubstr("the file has 8 bytes"));
}

TEST(Safetensors, OverlapsAndHoles) {
  const auto two = [&](const char* first, const char* second) {
    return ErrorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)" + std::string(first) +
                       R"(]},"b":{"dtype":"U8","shape":[4],"data_offsets":[)" + second + "]}}",
                   "12345678");
  };
  EXPECT_EQ(two("0,4", "4,8"), "no error");
  EXPECT_EQ(two("4,8", "0,4"), "no error");
  EXPECT_THAT(two("0,4", "3,7"), HasSubstr("tensor 'b' begins at 3 and overlaps that of tensor 'a', which ends at 4"));
  EXPECT_THAT(two("0,4", "0,4"), HasSubstr("overlaps"));
  EXPECT_THAT(EntryError(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})"),
              HasSubstr("bytes 0 to 4, between the header and tensor 'a', belong to no tensor"));
  EXPECT_THAT(EntryError(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), HasSubstr("bytes 4 to 8 at the end"));
}

// Any damage must give a file error or a file that reads the same; never a crash or a foreign exception.
TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[2,2],"data_offsets":[8,12]}})";
  const std::string whole = Bytes(header, "123456789012", header.size());
  const RngKey key = RngKey::FromSeed(5);
  int errors = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (uint64_t j = 0; j < 1 + i % 3; ++j) {
      const uint64_t random = key.Bits64(i * 4 + j);
      damaged[random % damaged.size()] = static_cast<char>(random >> 32);
    }
    errors += ErrorOf(damaged) != "no error";
  }
  EXPECT_GT(errors, 2000);
}

TEST(StrictJson, DepthIsCountedOutsideStrings) {
  EXPECT_FALSE(JsonIsDeeperThan(R"({"a":"[[[[[\"[[["})", 1));
  EXPECT_TRUE(JsonIsDeeperThan(R"({"a":[1]})", 1));
  EXPECT_FALSE(JsonIsDeeperThan(R"([[],[],[]])", 2));
  EXPECT_FALSE(JsonIsDeeperThan("]]]]", 0));
  EXPECT_FALSE(JsonIsDeeperThan("\"\\", 0));
  EXPECT_THROW(ParseStrictJson("[1]", "x", {.bytes = 2}), Error);
  EXPECT_THROW(ParseStrictJson(std::string(1 << 20, '['), "x"), Error);
}

}  // namespace
}  // namespace octavo
