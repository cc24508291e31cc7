// Self tests of quantizing.
#include "octavo/kernels/quantize.h"
#include "octavo/kernels/self_test_cases.h"

namespace octavo::kernels {

void SelfTestQuantize(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  constexpr int64_t kRows = 37, kCols = 301;
  const std::vector<float> x = SampleFloats(kRows * kCols, 1);
  const struct {
    const char* name;
    int64_t rows, cols;
  } blocks[] = {{"per row", 1, kCols}, {"per column", kRows, 1}, {"tiles of 32", 1, 32}, {"per tensor", kRows, kCols}};
  for (const auto& block : blocks) {
    const int64_t down = (kRows + block.rows - 1) / block.rows, across = (kCols + block.cols - 1) / block.cols;
    std::vector<float> scale[2] = {std::vector<float>(down * across), std::vector<float>(down * across)};
    std::vector<int8_t> codes[2] = {std::vector<int8_t>(kRows * kCols), std::vector<int8_t>(kRows * kCols)};
    for (int slot = 0; slot < 2; ++slot) {
      QuantizeArgs args;
      args.source.f32 = RowMajor(x.data(), kRows, kCols);
      args.block_rows = block.rows;
      args.block_cols = block.cols;
      args.scale = RowMajor(scale[slot].data(), down, across);
      args.codes = RowMajor(codes[slot].data(), kRows, kCols);
      slot == 0 ? QuantizeReference(args) : Quantize(pool, isa, args);
    }
    log.Compare(std::string("scales ") + block.name, scale[0], scale[1]);
    log.Compare(std::string("codes ") + block.name, codes[0], codes[1]);
  }
}

}  // namespace octavo::kernels
