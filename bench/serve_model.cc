#include "bench/serve_model.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/common/child_process.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint_writer.h"
#include "octavo/models/model.h"
#include "octavo/weights/model_json.h"

namespace octavo::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabulary = 32000;

models::ModelConfig ConfigOf(int64_t layers) {
  models::ModelConfig config;
  config.model_name = "random-llama";
  config.emb_dim = 2048;
  config.num_decoder_layers = layers;
  config.num_query_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.mlp_dim = 5632;
  config.vocab_size = kVocabulary;
  config.max_target_length = 1024;
  return config;
}

// One character for every byte, as byte-level tokenizers write them: those that can be seen stand for themselves.
std::vector<std::string> ByteCharacters() {
  std::vector<std::string> characters(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool seen = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = seen ? byte : next++;
    std::string& text = characters[static_cast<size_t>(byte)];
    if (code >= 0x80) text.push_back(static_cast<char>(0xC0 | code >> 6));
    text.push_back(static_cast<char>(code < 0x80 ? code : 0x80 | (code & 63)));
  }
  return characters;
}

// All bytes, pairs of bytes until the table is full, and an end.
std::string TokenizerJson() {
  nlohmann::json vocabulary, merges = nlohmann::json::array();
  const std::vector<std::string> characters = ByteCharacters();
  int64_t id = 0;
  for (const std::string& character : characters) vocabulary[character] = id++;
  for (int64_t pair = 0; id < kVocabulary - 1; ++pair) {
    const std::string& first = characters[static_cast<size_t>(pair / 256)];
    const std::string& second = characters[static_cast<size_t>(pair % 256)];
    vocabulary[first + second] = id++;
    merges.push_back({first, second});
  }
  vocabulary["<|endoftext|>"] = id;
  nlohmann::json json;
  json["version"] = "1.0";
  json["added_tokens"] = {{{"id", id}, {"content", "<|endoftext|>"}, {"special", true}}};
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["decoder"] = {{"type", "ByteLevel"}};
  json["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
  return json.dump();
}

// Uniform bf16 numbers of about the size of trained weights.
Tensor AnyWeight(const Shape& shape, uint64_t seed) {
  Tensor tensor = Tensor::Empty(shape, DType::kBF16);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  auto* data = reinterpret_cast<uint16_t*>(tensor.MutableRawData());
  for (int64_t i = 0; i < shape.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float value = (static_cast<float>(state >> 40) - 8388608.0f) * (0.05f / 8388608.0f);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    data[i] = static_cast<uint16_t>(bits >> 16);
  }
  return tensor;
}

void WriteFloats(const fs::path& folder, int64_t layers) {
  const std::unique_ptr<models::Model> model = models::MakeModel(ConfigOf(layers));
  std::vector<PlannedParameter> planned;
  for (const ops::Parameter* parameter : model->parameters()) {
    planned.push_back({parameter->name, parameter->shape().size() * 2});
  }
  CheckpointWriter writer(folder, planned, {});
  uint64_t seed = 0;
  for (const ops::Parameter* parameter : model->parameters()) {
    const Shape& shape = parameter->shape();
    writer.Add(parameter->name, {{{parameter->name, "BF16", {shape.begin(), shape.end()}}, AnyWeight(shape, ++seed)}});
  }
  writer.AddCarried("tokenizer.json", TokenizerJson());
  writer.manifest().kind = "params";
  writer.manifest().model = weights::ModelToJson(model->config()).dump();
  writer.Close();
  writer.Publish();
}

void Convert(std::vector<std::string> words) {
  words.insert(words.begin(), {"/proc/self/exe", "convert"});
  words.emplace_back("--quiet");
  ChildProcess convert(words, "/dev/stderr");
  if (convert.Wait() != 0) throw Error(ErrorCode::kJob, "the model could not be converted");
}

}  // namespace

ServedFiles MakeServedModel(const fs::path& folder, int64_t layers, bool with_gguf) {
  const ServedFiles files{folder / "int8", folder / "q8_0.gguf"};
  fs::create_directories(folder);
  if (!fs::exists(files.checkpoint)) {
    std::ofstream(folder / "int8.yml") << "rules:\n  - module_path: .*\n    op_names: [dot_general]\n"
                                          "    only_weights: true\n    weight_qtype: int8\n    act_qtype: int8\n";
    WriteFloats(folder / "floats", layers);
    Convert({folder / "floats", files.checkpoint, "recipe=" + (folder / "int8.yml").string()});
    fs::remove_all(folder / "floats");
  }
  if (with_gguf && !fs::exists(files.gguf)) Convert({files.checkpoint, files.gguf, "format=gguf"});
  return files;
}

}  // namespace octavo::bench
