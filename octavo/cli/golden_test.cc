#include "octavo/cli/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/golden_test_support.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const fs::path kData = fs::path(OCTAVO_SOURCE_DIR) / "tests/golden/numerics";

std::string FileErrorOf(const fs::path& folder) {
  return ErrorText(ErrorCode::kFile, [&] { RunFolder(folder); });
}

// A folder with a copy of one group, whose files a test may change.
struct Copy {
  explicit Copy(const std::string& name)
      : group(name),
        index(Json::parse(ReadFile(kData / (name + ".json")))),
        tensors(ReadFile(kData / (name + ".safetensors"))) {}

  void Write() {
    WriteFile(folder / (group + ".json"), index.dump());
    WriteFile(folder / (group + ".safetensors"), tensors);
  }

  TempFolder folder;
  std::string group;
  Json index;
  std::string tensors;
};

TEST(Golden, TheSelectionPasses) {
  const RunOutput result = RunFolder(kData);
  EXPECT_THAT(result.out, HasSubstr("a_formats          66 passed, 0 failed\n"));
  EXPECT_THAT(result.out, HasSubstr("c_dots             40 passed, 0 failed\n"));
  EXPECT_THAT(result.out, HasSubstr("h_threefry         28 passed, 0 failed\n237 passed, 0 failed\n"));
  EXPECT_EQ(result.log, "");
  EXPECT_EQ(result.code, 0);
}

// Every output, changed, must be noticed: nothing is compared with itself, nothing is left out.
TEST(Golden, EveryChangedOutputFails) {
  for (const char* name : {"a_formats", "h_threefry"}) {
    Copy copy(name);
    std::set<std::string> outputs;
    for (const auto& one : copy.index["cases"]) {
      for (const auto& [key, tensor] : one["outputs"].items()) outputs.insert(tensor.get<std::string>());
    }
    for (const auto& one : copy.index["cases"]) {
      for (const auto& [key, tensor] : one["inputs"].items()) outputs.erase(tensor.get<std::string>());
    }
    const std::string whole = copy.tensors;
    uint64_t length;
    std::memcpy(&length, whole.data(), 8);
    const Json header = Json::parse(whole.substr(8, length));
    EXPECT_GT(outputs.size(), 50u);
    for (const std::string& output : outputs) {
      copy.tensors = whole;
      const auto& offsets = header[output]["data_offsets"];
      for (uint64_t i = offsets[0]; i < offsets[1].get<uint64_t>(); ++i) copy.tensors[8 + length + i] ^= 0x21;
      copy.Write();
      const RunOutput result = RunFolder(copy.folder.path());
      EXPECT_EQ(result.code, 1) << output;
      EXPECT_THAT(result.log, HasSubstr("elements differ")) << output;
    }
  }
}

TEST(Golden, OneChangedBitFailsOneCase) {
  Copy copy("h_threefry");
  const size_t at = copy.tensors.size() - 1;  // the last integer of the last case, at most 999: a high bit
  copy.tensors[at] ^= 0x10;
  copy.Write();
  const RunOutput result = RunFolder(copy.folder.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "h_threefry  27 passed, 1 failed\n27 passed, 1 failed\n");
  EXPECT_THAT(result.log, HasSubstr("1 of 33 elements differ (bits); first at 32"));
}

TEST(Golden, NamesOfCasesMeanNothing) {
  for (const char* name : {"a_formats", "h_threefry"}) {
    Copy copy(name);
    std::map<std::string, std::string> names;
    int number = 0;
    for (auto& one : copy.index["cases"]) names[one["name"]] = "case " + std::to_string(number++);
    for (auto& one : copy.index["cases"]) {
      std::string call = one["call"];
      one["name"] = names[one["name"]];
      if (call.starts_with("as ")) {
        const std::string other = call.substr(3, call.find(" with ") - 3);
        one["call"] = "as " + names[other] + call.substr(3 + other.size());
      }
    }
    copy.Write();
    EXPECT_EQ(RunFolder(copy.folder.path()).code, 0) << name;
  }
}

TEST(Golden, WhatIsNotKnownFails) {
  const auto failure = [](const std::function<void(Json&)>& change) {
    Copy copy("h_threefry");
    Json one = copy.index["cases"][0];
    change(one);
    copy.index["cases"] = Json::array({one});
    copy.index["n_cases"] = 1;
    copy.Write();
    const RunOutput result = RunFolder(copy.folder.path());
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.out, HasSubstr("0 passed, 1 failed"));
    return result.log;
  };
  EXPECT_THAT(failure([](Json& one) { one["call"] = "jnp.sin(x)"; }), HasSubstr("not known: jnp.sin(x)"));
  EXPECT_THAT(failure([](Json& one) { one["call"] = 3; }), HasSubstr("a kind of case that is not known"));
  EXPECT_THAT(failure([](Json& one) { one["compare"] = "by eye"; }), HasSubstr("the rule 'by eye'"));
  EXPECT_THAT(failure([](Json& one) { one["compare"] = {{"x*", "bits"}}; }), HasSubstr("the rule ''"));
  EXPECT_THAT(failure([](Json& one) { one["outputs"]["poisson"] = one["outputs"].begin().value(); }),
              HasSubstr("output 'poisson' is not known"));
  EXPECT_THAT(failure([](Json& one) { one["results"] = 3; }), HasSubstr("the results were not compared"));
  EXPECT_THAT(failure([](Json& one) { one["error"] = "ValueError"; }), HasSubstr("the error was not provoked"));
  EXPECT_THAT(failure([](Json& one) { one["outputs"] = Json::object(); }), HasSubstr("nothing was compared"));
  EXPECT_THAT(failure([](Json& one) { one["args"]["seed"] = 77; }), HasSubstr("not the one of the seed"));
  EXPECT_THAT(failure([](Json& one) { one["args"]["shape"] = {-1}; }), HasSubstr("jax.random: "));
}

TEST(Golden, AReferenceInACircleIsNotKnown) {
  Copy copy("h_threefry");
  Json one = copy.index["cases"][0];
  one["call"] = "as " + one["name"].get<std::string>() + " with another input";
  copy.index["cases"] = Json::array({one});
  copy.index["n_cases"] = 1;
  copy.Write();
  EXPECT_THAT(RunFolder(copy.folder.path()).log, HasSubstr("a kind of case that is not known"));
}

TEST(Golden, InformationIsNotCompared) {
  Copy copy("h_threefry");
  for (auto& one : copy.index["cases"]) one["compare"] = "information: for reading only";
  copy.tensors.back() ^= 0x10;
  copy.Write();
  EXPECT_EQ(RunFolder(copy.folder.path()).code, 0);
}

TEST(Golden, TheFirstFailuresAreShownAllWhenVerbose) {
  Copy copy("h_threefry");
  for (auto& one : copy.index["cases"]) one["call"] = "unknown";
  copy.Write();
  const auto count = [](const std::string& text) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find("not known: unknown", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const RunOutput brief = RunFolder(copy.folder.path());
  EXPECT_EQ(count(brief.log), 5u);
  EXPECT_THAT(brief.log, HasSubstr("23 more failing cases"));
  EXPECT_EQ(count(RunFolder(copy.folder.path(), true).log), 28u);
}

TEST(Golden, AJsonFileWithoutCasesIsOneCase) {
  const TempFolder folder;
  WriteFile(folder / "other.json", R"({"case": "x", "seed": 1})");
  const RunOutput result = RunFolder(folder.path());
  EXPECT_EQ(result.out, "other  0 passed, 1 failed\n0 passed, 1 failed\n");
  EXPECT_EQ(result.code, 1);
}

TEST(Golden, MalformedFilesAreFileErrors) {
  EXPECT_THAT(FileErrorOf(kData / "no-such-folder"), HasSubstr("is not a folder"));
  EXPECT_THAT(FileErrorOf(kData / "README.md"), HasSubstr("is not a folder"));
  const TempFolder empty;
  EXPECT_THAT(FileErrorOf(empty.path()), HasSubstr("holds no reference data"));

  const auto changed = [](const std::function<void(Copy&)>& change) {
    Copy copy("h_threefry");
    copy.Write();
    change(copy);
    return FileErrorOf(copy.folder.path());
  };
  EXPECT_EQ(changed([](Copy&) {}), "no error");
  const auto index_text = [](Copy& copy, const std::string& text) { WriteFile(copy.folder / "h_threefry.json", text); };
  EXPECT_THAT(changed([&](Copy& copy) { index_text(copy, copy.index.dump().substr(0, 5000)); }), HasSubstr("not JSON"));
  EXPECT_THAT(changed([&](Copy& copy) { index_text(copy, "[]"); }), HasSubstr("expected a JSON object"));
  EXPECT_THAT(changed([&](Copy& copy) { index_text(copy, "{\"cases\":" + std::string(1000, '[')); }),
              HasSubstr("nested deeper"));
  EXPECT_THAT(changed([&](Copy& copy) { index_text(copy, R"({"cases":[3]})"); }), HasSubstr("case number 0"));
  EXPECT_THAT(changed([](Copy& copy) {
                copy.tensors.resize(copy.tensors.size() - 1);
                copy.Write();
              }),
              HasSubstr("h_threefry.safetensors: tensor"));
  EXPECT_THAT(changed([](Copy& copy) { fs::remove(copy.folder / "h_threefry.safetensors"); }),
              HasSubstr("which the safetensors file does not have"));
  EXPECT_THAT(changed([](Copy& copy) {
                copy.index["cases"][0]["inputs"]["key"] = "nowhere";
                copy.Write();
              }),
              HasSubstr("is tensor 'nowhere'"));
  EXPECT_THAT(changed([](Copy& copy) {
                copy.index["cases"][0]["inputs"] = 3;
                copy.Write();
              }),
              HasSubstr("inputs is not an object"));
  EXPECT_THAT(changed([](Copy& copy) {
                copy.index["cases"][1]["name"] = copy.index["cases"][0]["name"];
                copy.Write();
              }),
              HasSubstr("two cases are named"));
  EXPECT_THAT(changed([](Copy& copy) {
                copy.index["cases"].erase(0);
                copy.Write();
              }),
              HasSubstr("promises 28 cases and has 27"));
}

TEST(Golden, Between) {
  EXPECT_EQ(Between("f(a, b)", "(", ","), "a");
  EXPECT_EQ(Between("f(a, b)", "(", ")"), "a, b");
  EXPECT_EQ(Between("f(a", "(", ")"), std::nullopt);
  EXPECT_EQ(Between("f)a(", "(", ")"), std::nullopt);
  EXPECT_EQ(Between("", "", ""), "");
}

}  // namespace
}  // namespace octavo
