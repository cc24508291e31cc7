// Any bytes as a .bin or .npy of tokens: ids, or a file error; every id of a good file is readable.
#include "octavo/base/error.h"
#include "octavo/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr std::string_view kFormats[] = {"auto", "llmc", "nanogpt"};
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  try {
    const octavo::data::TokenView view = data[0] % 4 == 3
                                             ? octavo::data::ReadTokenNpy(bytes, "fuzz.npy")
                                             : octavo::data::ReadTokenBin(bytes, kFormats[data[0] % 4], "fuzz.bin");
    int64_t sum = 0;
    for (int64_t i = 0; i < view.size(); ++i) sum ^= view.At(i);
    if (sum == 0x123456789) return 1;
  } catch (const octavo::Error&) {
  }
  return 0;
}
