#include "octavo/config/yaml.h"

#include <gtest/gtest.h>

#include "octavo/base/error_test_support.h"

namespace octavo {
namespace {

std::string ErrorOf(std::string_view text) {
  return ErrorText(ErrorCode::kUsage, [&] { Yaml::Parse(text, "f.yml"); });
}

TEST(Yaml, ReadsScalarsListsAndMaps) {
  const Yaml yaml = Yaml::Parse("a: 1_000\nb: [x, 'None', None, 2.5]\nc:\n  d: true\n  e: 'int8'\n", "f.yml");
  EXPECT_EQ(yaml.Find("a")->Int("a"), 1000);
  const auto& items = yaml.Find("b")->items();
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].Text("x"), "x");
  EXPECT_EQ(items[1].Text("quoted"), "None");
  EXPECT_TRUE(items[2].is_null());
  EXPECT_EQ(items[3].Number("number"), 2.5);
  EXPECT_TRUE(yaml.Find("c")->Find("d")->Bool("d"));
  EXPECT_EQ(yaml.Find("c")->Find("e")->Text("e"), "int8");
  EXPECT_EQ(yaml.Find("c")->Find("e")->Where(), "f.yml:5");
  EXPECT_EQ(yaml.Find("absent"), nullptr);
  EXPECT_TRUE(Yaml::Parse("", "f.yml").is_null());
}

TEST(Yaml, RefusesWhatWouldBeSilent) {
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"), "f.yml:3: key 'a' stands here and on line 1");
  EXPECT_EQ(ErrorOf("a: &x 1\nb: *x\n"), "f.yml:1: an anchor (&name) is not allowed");
  EXPECT_EQ(ErrorOf("a: !!python/object 1\n"), "f.yml:1: a tag (!name) is not allowed");
  EXPECT_EQ(ErrorOf("---\na: 1\n---\nb: 2\n"), "f.yml: more than one document");
  EXPECT_EQ(ErrorOf("? [a]\n: 1\n"), "f.yml:1: a key must be plain text");
  EXPECT_EQ(ErrorOf("a: 1\n" + std::string(257, 'k') + ": 1\n"),
            "f.yml:2: a key of 257 bytes, at most 256 are allowed");
}

// Looking for a key among those before it must not take the square of their number.
TEST(Yaml, ManyKeysInOneMap) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += fmt::format("k{}: {}\n", i, i);
  const Yaml yaml = Yaml::Parse(text, "f.yml");
  EXPECT_EQ(yaml.fields().size(), 50'000u);
  EXPECT_EQ(ErrorOf(text + "k7: 1\n"), "f.yml:50001: key 'k7' stands here and on line 8");
}

TEST(Yaml, MalformedTextIsAnErrorWithItsLine) {
  for (const char* bad : {"a: [1, 2", "a: 'x", "\t- a", "a: b: c", "{a: 1", "- a\nb: 1", "a: \"\\q\""}) {
    EXPECT_TRUE(ErrorOf(bad).starts_with("f.yml:")) << bad << ": " << ErrorOf(bad);
  }
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_NE(ErrorOf(deep).find("nested deeper than 64 levels"), std::string::npos);
}

TEST(Yaml, WrongTypesNameThePlace) {
  const Yaml yaml = Yaml::Parse("a: x\nb: '1'\nc: 1.5\nd: [1]\n", "f.yml");
  EXPECT_THROW(yaml.Find("a")->Int("a"), Error);
  EXPECT_THROW(yaml.Find("b")->Int("b"), Error);
  EXPECT_THROW(yaml.Find("c")->Int("c"), Error);
  EXPECT_THROW(yaml.Find("a")->Bool("a"), Error);
  try {
    yaml.Find("d")->Text("d");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "f.yml:4: d: expected text, found a list");
  }
}

}  // namespace
}  // namespace octavo
