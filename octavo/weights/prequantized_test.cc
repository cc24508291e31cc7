#include "octavo/weights/prequantized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/base/error_test_support.h"
#include "octavo/base/publish.h"
#include "octavo/base/temp_folder.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A safetensors file made by hand.
class Maker {
 public:
  template <typename T>
  Maker& Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, std::vector<T> values) {
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  LogicalTensors Open(const Json& config) const {
    const TempFolder folder;
    const std::string header = header_.dump();
    const uint64_t length = header.size();
    PublishFile(folder / "model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header + data_);
    return OpenLogical(std::make_shared<const ShardedSafetensors>(folder.path()), config);
  }
  std::string ErrorOf(const Json& config, const std::string& read = "") const {
    return ErrorText(ErrorCode::kFile, [&] {
      LogicalTensors tensors = Open(config);
      if (!read.empty()) tensors.tensors.at(read).read();
    });
  }

 private:
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::string data_;
};

std::vector<float> Values(const LogicalTensors& tensors, const std::string& name) {
  return tensors.tensors.at(name).read().ToVector<float>();
}

// The QArray's own values, element by element.
std::vector<float> ValuesOf(const QArray& array) {
  const Tensor codes = array.qvalue.Contiguous(), scale = array.scale.RepeatTo(codes.shape()).Contiguous();
  std::vector<float> values;
  for (int64_t i = 0; i < codes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(codes.RawData()[i]);
    values.push_back(Decode(array.format, byte) * scale.Data<float>()[i]);
  }
  return values;
}

const Json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 4}, {"checkpoint_format", "gptq"}};

// Eight inputs, eight outputs, two groups; code = (row + column) % 16.
Maker GptqFile(const std::vector<int32_t>& g_idx) {
  std::vector<uint32_t> words;
  for (uint32_t c = 0; c < 8; ++c) {
    uint32_t word = 0;
    for (uint32_t r = 0; r < 8; ++r) word |= (r + c) % 16 << 4 * r;
    words.push_back(word);
  }
  std::vector<float> scales;
  for (int g = 0; g < 2; ++g) {
    for (int c = 0; c < 8; ++c) scales.push_back(g == 0 ? 0.5f : 2.0f);
  }
  Maker maker;
  maker.Add<uint32_t>("m.qweight", "I32", {1, 8}, words);
  maker.Add<uint32_t>("m.qzeros", "I32", {2, 1}, {0x77777777, 0x22222222});
  maker.Add<float>("m.scales", "F32", {2, 8}, scales);
  maker.Add<int32_t>("m.g_idx", "I32", {static_cast<int64_t>(g_idx.size())}, g_idx);
  maker.Add<float>("n", "F32", {1}, {7});
  return maker;
}

TEST(Prequantized, GptqStoresTheZeroPointMinusOne) {
  const LogicalTensors tensors = GptqFile({0, 0, 0, 0, 1, 1, 1, 1}).Open(kGptq);
  EXPECT_EQ(tensors.method, "gptq");
  const std::vector<float> values = Values(tensors, "m.weight");  // [out, in]
  EXPECT_EQ(values[0], (0 - 8) * 0.5f);
  EXPECT_EQ(values[5], (5 - 3) * 2.0f);
  EXPECT_EQ(values[8 * 3 + 2], (5 - 8) * 0.5f);  // column 3, row 2
  EXPECT_EQ(tensors.tensors.at("n").dtype, DType::kF32);
  std::string reason;
  const std::optional<QArray> array = ToQArray(tensors.tensors.at("m.weight").read_lattice(), &reason);
  ASSERT_TRUE(array) << reason;
  EXPECT_EQ(array->format, Format::kUint4);
  EXPECT_EQ(array->shape(), (Shape{8, 8}));
  EXPECT_EQ(array->scale.shape(), (Shape{8, 2}));
  Json second = kGptq;
  second["checkpoint_format"] = "gptq_v2";
  EXPECT_EQ(Values(GptqFile({0, 0, 0, 0, 1, 1, 1, 1}).Open(second), "m.weight")[0], (0 - 7) * 0.5f);
}

TEST(Prequantized, ScatteredGroupsAreDequantized) {
  const LogicalTensors tensors = GptqFile({1, 0, 1, 0, 1, 0, 1, 0}).Open(kGptq);
  const std::vector<float> values = Values(tensors, "m.weight");
  EXPECT_EQ(values[0], (0 - 3) * 2.0f);
  EXPECT_EQ(values[1], (1 - 8) * 0.5f);
  std::string reason;
  EXPECT_FALSE(ToQArray(tensors.tensors.at("m.weight").read_lattice(), &reason));
  EXPECT_THAT(reason, HasSubstr("desc_act"));
}

TEST(Prequantized, GptqRefusesWhatDoesNotFit) {
  EXPECT_THAT(GptqFile({0, 0, 0, 0, 1, 1, 1, 2}).ErrorOf(kGptq, "m.weight"), HasSubstr("group 2, there are 2"));
  EXPECT_THAT(GptqFile({0, 0}).ErrorOf(kGptq, "m.weight"), HasSubstr("groups of 2 rows, the weight has 8"));
  Json bad = kGptq;
  bad["bits"] = 3;
  EXPECT_THAT(GptqFile({0}).ErrorOf(bad), HasSubstr("GPTQ with 3 bits is not read"));
  bad["bits"] = 8;
  EXPECT_NE(GptqFile({0, 0, 0, 0}).ErrorOf(bad, "m.weight"), "no error");
  Maker lonely;
  lonely.Add<uint32_t>("m.qweight", "I32", {1, 8}, std::vector<uint32_t>(8));
  EXPECT_THAT(lonely.ErrorOf(kGptq), HasSubstr("'m.qzeros' is missing"));
  EXPECT_THAT(lonely.ErrorOf(Json{{"quant_method", "magic"}}), HasSubstr("unsupported quant_method 'magic'"));
  EXPECT_THAT(lonely.ErrorOf(Json{{"quant_method", "magic"}}), HasSubstr("known: compressed-tensors gptq awq"));
}

TEST(Prequantized, AwqOrdersTheOutputsOfAWord) {
  Maker maker;
  maker.Add<uint32_t>("m.qweight", "I32", {1, 1}, {0x76543210});
  maker.Add<uint32_t>("m.qzeros", "I32", {1, 1}, {0});
  maker.Add<float>("m.scales", "F32", {1, 8}, std::vector<float>(8, 1.0f));
  const Json config = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 1}};
  EXPECT_THAT(Values(maker.Open(config), "m.weight"), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

const Json kPacked = {{"quant_method", "compressed-tensors"},
                      {"format", "pack-quantized"},
                      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}}}}}}}};

TEST(Prequantized, CompressedTensorsPacked) {
  Maker maker;
  maker.Add<uint32_t>("m.weight_packed", "I32", {1, 1}, {0xfedc8210});
  maker.Add<int64_t>("m.weight_shape", "I64", {2}, {1, 8});
  maker.Add<uint16_t>("m.weight_scale", "BF16", {1, 2}, {0x3f80, 0x4000});  // 1 and 2
  const LogicalTensors tensors = maker.Open(kPacked);
  EXPECT_THAT(Values(tensors, "m.weight"), ElementsAre(-8, -7, -6, 0, 8, 10, 12, 14));
  std::string reason;
  const std::optional<QArray> array = ToQArray(tensors.tensors.at("m.weight").read_lattice(), &reason);
  ASSERT_TRUE(array);
  EXPECT_EQ(array->format, Format::kInt4);
  EXPECT_EQ(array->scale.dtype(), DType::kBF16);
  Maker wrong;
  wrong.Add<uint32_t>("m.weight_packed", "I32", {1, 1}, {0});
  wrong.Add<int64_t>("m.weight_shape", "I64", {2}, {1, int64_t{1} << 60});
  wrong.Add<float>("m.weight_scale", "F32", {1, 1}, {1});
  EXPECT_THAT(wrong.ErrorOf(kPacked), HasSubstr("1 words for rows of 1152921504606846976"));
  EXPECT_THAT(wrong.ErrorOf(Json{{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}}),
              HasSubstr("format 'nvfp4-pack-quantized' is not read"));
}

TEST(Prequantized, BlocksOfFp8MayBeCutAtTheEdge) {
  Maker maker;
  maker.Add<uint8_t>("m.weight", "F8_E4M3", {3, 2}, std::vector<uint8_t>(6, 0x38));  // all ones
  maker.Add<float>("m.weight_scale_inv", "F32", {2, 1}, {3, 5});
  const Json config = {{"quant_method", "fp8"}, {"weight_block_size", {2, 2}}};
  const LogicalTensors tensors = maker.Open(config);
  EXPECT_THAT(Values(tensors, "m.weight"), ElementsAre(3, 3, 3, 3, 5, 5));
  std::string reason;
  EXPECT_FALSE(ToQArray(tensors.tensors.at("m.weight").read_lattice(), &reason));
  EXPECT_THAT(reason, HasSubstr("tiles of 2 × 2 do not divide [3, 2]"));
  EXPECT_THAT(maker.ErrorOf(Json{{"quant_method", "fp8"}, {"weight_block_size", {1, 2}}}, "m.weight"),
              HasSubstr("expected scales [3, 1]"));
  Maker bare;
  bare.Add<uint8_t>("m.weight", "F8_E4M3", {1, 1}, {0});
  EXPECT_THAT(bare.ErrorOf(config), HasSubstr("holds codes without scales"));
}

TEST(Prequantized, Mxfp4ExpertsAreTransposed) {
  std::vector<uint8_t> blocks(32);
  blocks[0] = 0x72;   // elements 0 and 1 of output 0: 1.0 and 6.0
  blocks[16] = 0x0a;  // element 0 of output 1: -1.0
  Maker maker;
  maker.Add<uint8_t>("e_blocks", "U8", {1, 2, 1, 16}, blocks);
  maker.Add<uint8_t>("e_scales", "U8", {1, 2, 1}, {128, 126});
  const LogicalTensors tensors = maker.Open(Json{{"quant_method", "mxfp4"}});
  EXPECT_EQ(tensors.tensors.at("e").shape, (Shape{1, 32, 2}));
  const std::vector<float> values = Values(tensors, "e");
  EXPECT_EQ(values[0], 2.0f);
  EXPECT_EQ(values[1], -0.5f);
  EXPECT_EQ(values[2], 12.0f);
  std::string reason;
  const std::optional<QArray> array = ToQArray(tensors.tensors.at("e").read_lattice(), &reason);
  ASSERT_TRUE(array) << reason;
  EXPECT_EQ(ValuesOf(*array), values);
}

TEST(Prequantized, BitsandbytesFourBits) {
  const std::string state = R"({"quant_type":"nf4","blocksize":2,"shape":[2,2]})";
  const std::span<const float> nf4 = DecodeTable(Format::kNF4);
  const auto file = [&](std::vector<float> map) {
    Maker maker;
    maker.Add<uint8_t>("m.weight", "U8", {2, 1}, {0x0f, 0x7f});
    maker.Add<float>("m.weight.absmax", "F32", {2}, {2, 4});
    maker.Add<float>("m.weight.quant_map", "F32", {16}, std::move(map));
    maker.Add<char>("m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state.size())},
                    {state.begin(), state.end()});
    return maker;
  };
  const Json config = {{"quant_method", "bitsandbytes"}};
  const LogicalTensors tensors = file({nf4.begin(), nf4.end()}).Open(config);
  EXPECT_THAT(Values(tensors, "m.weight"), ElementsAre(-2, 2, 0, 4));
  std::string reason;
  EXPECT_TRUE(ToQArray(tensors.tensors.at("m.weight").read_lattice(), &reason));
  std::vector<float> other(16, 0.25f);
  const LogicalTensors foreign = file(other).Open(config);
  EXPECT_THAT(Values(foreign, "m.weight"), ElementsAre(0.5f, 0.5f, 1, 1));
  EXPECT_FALSE(ToQArray(foreign.tensors.at("m.weight").read_lattice(), &reason));
  EXPECT_THAT(reason, HasSubstr("not nf4"));
}

TEST(Prequantized, BitsandbytesInt8DividesLast) {
  Maker maker;
  maker.Add<int8_t>("m.weight", "I8", {1, 2}, {127, -3});
  maker.Add<float>("m.SCB", "F32", {1}, {0.3f});
  const LogicalTensors tensors = maker.Open(Json{{"quant_method", "bitsandbytes"}});
  EXPECT_THAT(Values(tensors, "m.weight"), ElementsAre(127 * 0.3f / 127, -3 * 0.3f / 127));
}

}  // namespace
}  // namespace octavo::weights
