#include "octavo/checkpoint/llama2c.h"

#include <cstring>

#include "octavo/base/checked.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr uint32_t kMagic = 0x616b3432;  // "ak42"
constexpr uint64_t kHeader = 256;        // of the forms with a magic number
constexpr int64_t kMostLayers = 4096, kMostSize = 1 << 24;

class Walk {
 public:
  Walk(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  template <typename T>
  T Read() {
    T value;
    std::memcpy(&value, Take(1, sizeof(T), "its header").data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> Take(int64_t count, int64_t size, std::string_view what) {
    const std::optional<int64_t> bytes = CheckedMul(count, size);
    if (!bytes || static_cast<uint64_t>(*bytes) > bytes_.size() - at_) {
      throw Error(ErrorCode::kFile,
                  fmt::format("{}: {} needs {} × {} bytes at byte {}, the file has {} left", file_, what, count, size,
                              at_, bytes_.size() - at_),
                  "the file is cut short, or no model of llama2.c");
    }
    const auto taken = bytes_.subspan(at_, static_cast<uint64_t>(*bytes));
    at_ += taken.size();
    return taken;
  }

  void SkipTo(uint64_t position) {
    if (position > bytes_.size()) ThrowFile("{}: too short for its header", file_);
    at_ = position;
  }
  uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t at_ = 0;
};

void ReadSizes(Walk& walk, Llama2cContent& content, const std::string& file) {
  for (int64_t* size : {&content.dim, &content.hidden_dim, &content.layers, &content.heads, &content.kv_heads,
                        &content.vocab_size, &content.length}) {
    *size = walk.Read<int32_t>();
  }
  if (content.version == 0) {
    content.tied = content.vocab_size > 0;
    content.vocab_size = content.vocab_size < 0 ? -content.vocab_size : content.vocab_size;
  }
  for (const int64_t size : {content.dim, content.hidden_dim, content.heads, content.kv_heads, content.vocab_size,
                             content.length, content.layers}) {
    if (size < 1 || size > kMostSize) ThrowFile("{}: a size of {}; this is no model of llama2.c", file, size);
  }
  if (content.layers > kMostLayers || content.dim % content.heads != 0 || content.heads % content.kv_heads != 0 ||
      content.dim / content.heads % 2 != 0) {
    ThrowFile("{}: {} layers, width {}, {} heads, {} key heads do not fit each other", file, content.layers,
              content.dim, content.heads, content.kv_heads);
  }
}

// Takes tensors one after the other.
class Taker {
 public:
  Taker(Walk& walk, Llama2cContent& content, int64_t group) : walk_(walk), content_(content), group_(group) {}

  void Floats(const std::string& name, std::vector<int64_t> shape) {
    Llama2cTensor tensor{name, std::move(shape), 0, {}, {}};
    tensor.bytes = walk_.Take(Product(tensor), 4, name);
    content_.tensors.push_back(std::move(tensor));
  }
  // A matrix: f32, or codes and scales.
  void Matrix(const std::string& name, int64_t out, int64_t in) {
    if (group_ == 0) return Floats(name, {out, in});
    Llama2cTensor tensor{name, {out, in}, group_, {}, {}};
    const int64_t count = Product(tensor);
    tensor.bytes = walk_.Take(count, 1, name);
    tensor.scales = walk_.Take(count / group_, 4, name);
    content_.tensors.push_back(std::move(tensor));
  }
  void EachLayer(const char* part, int64_t out, int64_t in) {
    for (int64_t i = 0; i < content_.layers; ++i) Matrix(fmt::format("model.layers.{}.{}.weight", i, part), out, in);
  }
  void EachNorm(const char* part) {
    for (int64_t i = 0; i < content_.layers; ++i) {
      Floats(fmt::format("model.layers.{}.{}.weight", i, part), {content_.dim});
    }
  }

 private:
  static int64_t Product(const Llama2cTensor& tensor) { return CheckedProduct(tensor.shape).value_or(INT64_MAX); }

  Walk& walk_;
  Llama2cContent& content_;
  int64_t group_;
};

void TakeAttention(Taker& take, const Llama2cContent& c) {
  const int64_t kv = c.dim / c.heads * c.kv_heads;
  take.EachLayer("self_attn.q_proj", c.dim, c.dim);
  take.EachLayer("self_attn.k_proj", kv, c.dim);
  take.EachLayer("self_attn.v_proj", kv, c.dim);
  take.EachLayer("self_attn.o_proj", c.dim, c.dim);
}

void TakeMlp(Taker& take, const Llama2cContent& c) {
  take.EachLayer("mlp.gate_proj", c.hidden_dim, c.dim);
  take.EachLayer("mlp.down_proj", c.dim, c.hidden_dim);
  take.EachLayer("mlp.up_proj", c.hidden_dim, c.dim);
}

void ReadFirstForm(Walk& walk, Llama2cContent& c) {
  Taker take(walk, c, 0);
  take.Floats("model.embed_tokens.weight", {c.vocab_size, c.dim});
  take.EachNorm("input_layernorm");
  TakeAttention(take, c);
  take.EachNorm("post_attention_layernorm");
  TakeMlp(take, c);
  take.Floats("model.norm.weight", {c.dim});
  // Tables of cosines and sines, which nobody reads any more.
  walk.Take(c.length * (c.dim / c.heads), 4, "its tables of positions");
  if (!c.tied) take.Floats("lm_head.weight", {c.vocab_size, c.dim});
}

void ReadLaterForm(Walk& walk, Llama2cContent& c, int64_t group) {
  Taker take(walk, c, group);
  take.EachNorm("input_layernorm");
  take.EachNorm("post_attention_layernorm");
  take.Floats("model.norm.weight", {c.dim});
  take.Matrix("model.embed_tokens.weight", c.vocab_size, c.dim);
  TakeAttention(take, c);
  TakeMlp(take, c);
  if (!c.tied) take.Matrix("lm_head.weight", c.vocab_size, c.dim);
}

}  // namespace

Llama2cContent ParseLlama2c(std::span<const std::byte> bytes, const std::string& file) {
  Walk walk(bytes, file);
  Llama2cContent content;
  uint32_t first = 0;
  if (bytes.size() >= 4) std::memcpy(&first, bytes.data(), 4);
  if (first != kMagic) {
    ReadSizes(walk, content, file);
    ReadFirstForm(walk, content);
  } else {
    walk.Read<uint32_t>();
    content.version = walk.Read<int32_t>();
    if (content.version != 1 && content.version != 2) {
      ThrowFile("{}: version {} of llama2.c's files is not read; known: 1 2", file, content.version);
    }
    ReadSizes(walk, content, file);
    content.tied = walk.Read<uint8_t>() != 0;
    const int64_t group = content.version == 2 ? walk.Read<int32_t>() : 0;
    if (content.version == 2 && (group < 1 || content.dim % group != 0)) {
      ThrowFile("{}: groups of {} do not divide rows of {}", file, group, content.dim);
    }
    walk.SkipTo(kHeader);
    ReadLaterForm(walk, content, group);
  }
  if (walk.left() != 0) ThrowFile("{}: {} bytes at the end belong to no tensor", file, walk.left());
  return content;
}

bool LooksLikeLlama2c(std::span<const std::byte> bytes) {
  try {
    ParseLlama2c(bytes, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace octavo
