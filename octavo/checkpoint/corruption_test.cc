// Silent corruption: 10,000 single bytes changed and 1,000 truncations of a checkpoint, all of them found. The files
// are small and changed in place, so that it takes a second.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

Tensor Filled(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor tensor = Tensor::Empty(shape, dtype);
  const std::span<std::byte> bytes(tensor.MutableRawData(), static_cast<size_t>(tensor.bytes()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(RngKey::FromSeed(seed).Bits32(i) & 0x3f);
  }
  return tensor;
}

// Floats, codes with their scales, recipe state: everything that kinds of checkpoints hold.
void WriteSmall(const fs::path& folder) {
  CheckpointContent content;
  content.step = 3;
  content.config = "steps: 7\n";
  content.recipe = "name: int8\n";
  content.parameters = {{"decoder/layers_0/mlp/wo/kernel", Filled({8, 6}, DType::kI8, 1)},
                        {"decoder/layers_0/mlp/wo/kernel_scale", Filled({1, 6}, DType::kF32, 2)},
                        {"token_embedder/embedding", Filled({5, 4}, DType::kBF16, 3)}};
  content.optimizer = {{"opt/mu/token_embedder/embedding", Filled({5, 4}, DType::kF32, 4)}};
  content.state = {{"state/amax", Filled({3}, DType::kF32, 5)}};
  WriteCheckpoint(folder, content, {.file_bytes = 200});
}

bool Found(const fs::path& folder) {
  try {
    Checkpoint(folder).Verify();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile) << error.what();
    return true;
  }
}

std::vector<fs::path> FilesOf(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Corruption, TenThousandBytes) {
  const TempFolder folder;
  WriteSmall(folder / "1");
  ASSERT_FALSE(Found(folder / "1"));
  const std::vector<fs::path> files = FilesOf(folder / "1");
  ASSERT_GE(files.size(), 4u);
  const RngKey key = RngKey::FromSeed(17);
  int found = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const fs::path& path = files[i % files.size()];
    const auto at = static_cast<off_t>(key.Bits64(2 * i) % fs::file_size(path));
    const auto flip = static_cast<char>(1 + key.Bits32(2 * i + 1) % 255);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    char was = 0;
    ASSERT_EQ(pread(file, &was, 1, at), 1);
    const char broken = static_cast<char>(was ^ flip);
    ASSERT_EQ(pwrite(file, &broken, 1, at), 1);
    const bool seen = Found(folder / "1");
    found += seen ? 1 : 0;
    EXPECT_TRUE(seen) << path << " byte " << at;
    ASSERT_EQ(pwrite(file, &was, 1, at), 1);
    close(file);
  }
  EXPECT_EQ(found, 10000);
  EXPECT_FALSE(Found(folder / "1"));
}

TEST(Corruption, AThousandTruncations) {
  const TempFolder folder;
  WriteSmall(folder / "1");
  const std::vector<fs::path> files = FilesOf(folder / "1");
  const RngKey key = RngKey::FromSeed(18);
  int found = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const fs::path& path = files[i % files.size()];
    std::ifstream in(path, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(in), {}};
    fs::resize_file(path, key.Bits64(i) % whole.size());
    found += Found(folder / "1") ? 1 : 0;
    std::ofstream(path, std::ios::binary) << whole;
  }
  EXPECT_EQ(found, 1000);
  EXPECT_FALSE(Found(folder / "1"));
}

}  // namespace
}  // namespace octavo
