// The fuzz targets without libFuzzer: every seed of fuzz/corpus as it is, and a fixed number of changed ones, under any
// compiler and sanitizer. A target that crashes leaves the input in the folder for temporary files, as
// octavo_fuzz_<target>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#define FUZZ_TARGET(name) extern "C" int Fuzz_##name(const uint8_t* data, size_t size);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

namespace fs = std::filesystem;

constexpr size_t kChangedInputs = 2000;

struct Target {
  const char* name;
  int (*run)(const uint8_t*, size_t);
};

#define FUZZ_TARGET(name) {#name, &Fuzz_##name},
constexpr Target kTargets[] = {
#include "fuzz_targets.inc"
};
#undef FUZZ_TARGET

std::vector<std::string> Seeds(const std::string& target) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(OCTAVO_SOURCE_DIR "/fuzz/corpus/" + target)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Changes of the kinds that parsers fall over: cut, repeated and swapped parts, numbers out of every range.
class Changes {
 public:
  explicit Changes(uint64_t seed) : engine_(seed) {}

  std::string Of(const std::vector<std::string>& seeds, size_t index) {
    std::string input = seeds[index];
    for (size_t left = 1 + Below(3); left > 0; --left) ChangeOnce(input, seeds);
    return input;
  }

 private:
  void ChangeOnce(std::string& input, const std::vector<std::string>& seeds) {
    static constexpr std::string_view kWords[] = {"-1",
                                                  "0",
                                                  "2147483648",
                                                  "9223372036854775807",
                                                  "18446744073709551616",
                                                  "1e999",
                                                  "null",
                                                  "[[[[",
                                                  "{\"a\":",
                                                  "\"",
                                                  "<0x-1>",
                                                  "\xFF",
                                                  "\xC3",
                                                  "\\ud800",
                                                  "%}",
                                                  "{{",
                                                  "\n",
                                                  "(a+)+$"};
    const size_t at = Below(input.size() + 1), length = Below(std::min<size_t>(input.size() - at, 64) + 1);
    switch (Below(8)) {
      case 0:
        input.resize(at);
        return;
      case 1:
        input.erase(at, length);
        return;
      case 2:
        input.insert(at, input.substr(at, length));
        return;
      case 3:
        input.replace(at, std::min<size_t>(length, 4), kWords[Below(std::size(kWords))]);
        return;
      case 4: {
        const std::string& other = seeds[Below(seeds.size())];
        input.replace(at, std::string::npos, other.substr(Below(other.size() + 1)));
        return;
      }
      case 5:
        WriteInteger(input, at);
        return;
      default:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1u << Below(8)));
    }
  }

  // A little-endian count or offset of a binary file.
  void WriteInteger(std::string& input, size_t at) {
    static constexpr uint64_t kValues[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, uint64_t{1} << 63, UINT64_MAX};
    const uint64_t value = kValues[Below(std::size(kValues))];
    const size_t width = Below(2) == 0 ? 4 : 8;
    for (size_t i = 0; i < width && at + i < input.size(); ++i) input[at + i] = static_cast<char>(value >> (8 * i));
  }

  size_t Below(size_t bound) { return static_cast<size_t>(engine_() % bound); }

  std::mt19937_64 engine_;
};

class FuzzReplay : public testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, SeedsAndChangesOfThem) {
  const Target& target = GetParam();
  const std::vector<std::string> seeds = Seeds(target.name);
  ASSERT_FALSE(seeds.empty());
  const fs::path last = fs::path(testing::TempDir()) / fmt::format("octavo_fuzz_{}", target.name);
  const auto run = [&](const std::string& input) {
    std::ofstream(last, std::ios::binary) << input;
    // A copy of just the size, so that the address sanitizer sees a byte read past the end.
    const std::vector<uint8_t> bytes(input.begin(), input.end());
    ASSERT_EQ(target.run(bytes.data(), bytes.size()), 0);
  };
  run("");
  for (const std::string& seed : seeds) run(seed);
  Changes changes(1);
  for (size_t i = 0; i < kChangedInputs; ++i) run(changes.Of(seeds, i % seeds.size()));
  fs::remove(last);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
