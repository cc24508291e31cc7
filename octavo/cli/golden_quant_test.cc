// The kinds about quantized arrays and dots, on the selection of reference data in tests/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/base/temp_folder.h"
#include "octavo/cli/golden_test_support.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::IsEmpty;
using ::testing::Not;

const fs::path kData = fs::path(OCTAVO_SOURCE_DIR) / "tests/golden/numerics";
const char* const kGroups[] = {"b_qarray", "b_qarray_truediv", "b_qarray_mx_wheel", "c_dots",
                               "e_aqt",    "f_fp8_delayed",    "g_sparsity_kv"};

std::vector<std::string> FailuresOf(const fs::path& index, ThreadPool& pool) {
  std::vector<std::string> all;
  const GoldenGroup group(index);
  const std::vector<GoldenKind> kinds = GoldenKinds();
  for (const GoldenCase& one : group.cases()) {
    for (const std::string& failure : RunGoldenCase(one, kinds, pool)) all.push_back(one.name() + ": " + failure);
  }
  return all;
}

// A group on disk whose cases are run one at a time, with changes.
struct Loaded {
  explicit Loaded(const std::string& name)
      : group(name),
        index(Json::parse(ReadFile(kData / (name + ".json")))),
        tensors(ReadFile(kData / (name + ".safetensors"))) {
    std::memcpy(&length, tensors.data(), 8);
    header = Json::parse(tensors.substr(8, length));
  }

  std::vector<std::string> FailuresOfOne(const Json& one, const std::string& bytes, ThreadPool& pool) const {
    Json alone = index;
    alone["cases"] = Json::array({one});
    alone["n_cases"] = 1;
    WriteFile(folder / (group + ".json"), alone.dump());
    WriteFile(folder / (group + ".safetensors"), bytes);
    return FailuresOf(folder / (group + ".json"), pool);
  }

  // All bytes of one tensor changed.
  std::string Changed(const std::string& tensor) const {
    std::string bytes = tensors;
    const auto& offsets = header[tensor]["data_offsets"];
    for (uint64_t i = offsets[0]; i < offsets[1].get<uint64_t>(); ++i) bytes[8 + length + i] ^= 0x21;
    return bytes;
  }

  TempFolder folder;
  std::string group;
  Json index, header;
  std::string tensors;
  uint64_t length = 0;
};

TEST(GoldenQuant, TheSelectionPassesForAnyNumberOfThreads) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const std::string group : kGroups) {
      EXPECT_THAT(FailuresOf(kData / (group + ".json"), pool), IsEmpty()) << group;
    }
  }
}

// Every output of every case, changed, must be noticed, except those that are there for information.
TEST(GoldenQuant, EveryChangedOutputFails) {
  ThreadPool pool(1);
  for (const char* group : kGroups) {
    const Loaded loaded(group);
    for (const Json& one : loaded.index["cases"]) {
      std::set<std::string> inputs;
      for (const auto& [key, tensor] : one["inputs"].items()) inputs.insert(tensor.get<std::string>());
      for (const auto& [key, tensor] : one["outputs"].items()) {
        const bool information = one["compare"].is_object() && one["compare"].value(key, "") == "information";
        if (information || inputs.contains(tensor.get<std::string>())) continue;
        EXPECT_THAT(loaded.FailuresOfOne(one, loaded.Changed(tensor.get<std::string>()), pool), Not(IsEmpty()))
            << group << ": " << one["name"] << " " << key;
      }
    }
  }
}

// An argument that nobody knows must not be ignored, and names of cases mean nothing.
TEST(GoldenQuant, UnknownArgumentsFailAndNamesDoNot) {
  ThreadPool pool(1);
  for (const char* group : kGroups) {
    const Loaded loaded(group);
    std::set<std::string> calls;
    for (const Json& one : loaded.index["cases"]) {
      if (one.contains("error") || !calls.insert(one["call"].get<std::string>()).second) continue;
      Json renamed = one;
      renamed["name"] = "another name";
      EXPECT_THAT(loaded.FailuresOfOne(renamed, loaded.tensors, pool), IsEmpty()) << one["name"];
      Json strange = one;
      strange["args"]["temperature"] = 3;
      EXPECT_THAT(loaded.FailuresOfOne(strange, loaded.tensors, pool), Not(IsEmpty())) << one["name"];
    }
  }
}

}  // namespace
}  // namespace octavo
