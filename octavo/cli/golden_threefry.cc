// Kinds of cases about random numbers: jax.random's bits, uniforms, normals, integers, split and fold_in.
#include <charconv>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/cli/golden.h"
#include "octavo/numerics/half.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

bool IsRandom(const GoldenCase& golden) {
  return golden.call().starts_with("jax.random.") && golden.HasInput("key") && golden.Arg("partitionable").is_boolean();
}

RngKey ReadKey(const GoldenCase& golden) {
  const Tensor key = golden.Input("key");
  if (key.dtype() != DType::kU32 || key.size() != 2) ThrowFile("the key is {}, expected u32[2]", key.ToString());
  const std::vector<uint32_t> words = key.ToVector<uint32_t>();
  return {words[0], words[1]};
}

template <typename T>
std::optional<T> Parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "A, B)" after a mark in the call, as in "randint(0, 1000)".
template <typename T>
std::pair<T, T> RangeAfter(std::string_view call, std::string_view mark) {
  const std::optional<std::string> text = Between(call, mark, ")");
  const size_t comma = text ? text->find(", ") : std::string::npos;
  if (comma != std::string::npos) {
    const std::optional<T> low = Parse<T>(std::string_view(*text).substr(0, comma));
    const std::optional<T> high = Parse<T>(std::string_view(*text).substr(comma + 2));
    if (low && high) return {*low, *high};
  }
  ThrowFile("no range after '{}' in the call '{}'", mark, call);
}

// One stream of random numbers and what is asked of it.
class Stream {
 public:
  Stream(const GoldenCase& golden, RngKey key, RngMode mode)
      : call_(golden.call()), key_(key), mode_(mode), shape_(ReadShape(golden)) {}

  // The output of that name; nullopt when nothing has it.
  std::optional<Tensor> Make(const std::string& name) const {
    if (name == "u8") return Bits<uint8_t>(8, DType::kU8);
    if (name == "u16") return Bits<uint16_t>(16, DType::kU16);
    if (name == "u32") return Bits<uint32_t>(32, DType::kU32);
    if (name == "u64") return Bits<uint64_t>(64, DType::kU64);
    if (name == "uniform")
      return Fill<float>(DType::kF32, 32, [](uint64_t bits) { return UniformFromBits(Low(bits)); });
    if (name == "uniform_c") {
      const auto [low, high] = RangeAfter<float>(call_, "uniform(key, shape, f32, ");
      return Fill<float>(DType::kF32, 32,
                         [low = low, high = high](uint64_t bits) { return UniformFromBits(Low(bits), low, high); });
    }
    if (name == "uniform_bf16") {
      return Fill<uint16_t>(DType::kBF16, 8,
                            [](uint64_t bits) { return F32ToBF16(UniformBF16FromBits(static_cast<uint8_t>(bits))); });
    }
    if (name == "uniform_f16") {
      return Fill<uint16_t>(DType::kF16, 16,
                            [](uint64_t bits) { return F32ToF16(UniformF16FromBits(static_cast<uint16_t>(bits))); });
    }
    if (name == "normal") return Fill<float>(DType::kF32, 32, [](uint64_t bits) { return NormalFromBits(Low(bits)); });
    if (name == "randint") return Integers();
    if (name.starts_with("split")) return Split(std::string_view(name).substr(5));
    if (name.starts_with("fold")) return FoldIn(std::string_view(name).substr(4));
    return std::nullopt;
  }

 private:
  static uint32_t Low(uint64_t bits) { return static_cast<uint32_t>(bits); }

  static Shape ReadShape(const GoldenCase& golden) {
    const Json& shape = golden.Arg("shape");
    if (shape.is_null()) return Shape();
    std::vector<int64_t> dims;
    for (const Json& dim : shape) {
      if (!dim.is_number_integer()) ThrowFile("args.shape is not a list of whole numbers");
      dims.push_back(dim.get<int64_t>());
    }
    return Shape(dims);
  }

  template <typename T, typename Convert>
  Tensor Fill(DType dtype, int width, Convert convert) const {
    std::vector<T> values;
    const uint64_t size = static_cast<uint64_t>(shape_.size());
    for (uint64_t i = 0; i < size; ++i) values.push_back(convert(key_.Bits(width, i, size, mode_)));
    return Tensor::FromValues(shape_, dtype, values);
  }

  template <typename T>
  Tensor Bits(int width, DType dtype) const {
    return Fill<T>(dtype, width, [](uint64_t bits) { return static_cast<T>(bits); });
  }

  Tensor Integers() const {
    const auto [low, high] = RangeAfter<int32_t>(call_, "randint(");
    std::vector<int32_t> values;
    const uint64_t size = static_cast<uint64_t>(shape_.size());
    for (uint64_t i = 0; i < size; ++i) values.push_back(RandomInteger(key_, i, size, low, high, mode_));
    return Tensor::FromValues(shape_, DType::kI32, values);
  }

  std::optional<Tensor> Split(std::string_view digits) const {
    const std::optional<uint32_t> count = Parse<uint32_t>(digits);
    if (!count || *count > 1'000'000) return std::nullopt;
    std::vector<uint32_t> words;
    for (uint64_t i = 0; i < *count; ++i) {
      const RngKey key = key_.Split(i, *count, mode_);
      words.insert(words.end(), {key.word0, key.word1});
    }
    return Tensor::FromValues(Shape{static_cast<int64_t>(*count), 2}, DType::kU32, words);
  }

  std::optional<Tensor> FoldIn(std::string_view digits) const {
    const std::optional<uint32_t> data = Parse<uint32_t>(digits);
    if (!data) return std::nullopt;
    const RngKey key = key_.FoldIn(*data);
    return Tensor::FromValues(Shape{2}, DType::kU32, std::vector<uint32_t>{key.word0, key.word1});
  }

  std::string_view call_;
  RngKey key_;
  RngMode mode_;
  Shape shape_;
};

void RunRandom(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const RngKey key = ReadKey(golden);
  if (const Json& seed = golden.Arg("seed"); seed.is_number_integer()) {
    // JAX without 64-bit types drops the upper half of a seed.
    const RngKey made = RngKey::FromSeed(static_cast<uint64_t>(seed.get<int64_t>()));
    if (made.word1 != key.word1 || (made.word0 != key.word0 && key.word0 != 0)) {
      check.Fail("the key is not the one of the seed");
    }
  }
  const RngMode mode = golden.Arg("partitionable") == true ? RngMode::kPartitionable : RngMode::kOriginal;
  const Stream stream(golden, key, mode);
  for (const auto& [name, tensor] : golden.outputs()) {
    if (const std::optional<Tensor> actual = stream.Make(name)) {
      check.Output(name, *actual);
    } else {
      check.Fail(fmt::format("output '{}' is not known", name));
    }
  }
}

}  // namespace

std::vector<GoldenKind> ThreefryKinds() { return {{"jax.random", IsRandom, RunRandom}}; }

}  // namespace octavo
