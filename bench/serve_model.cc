#include "bench/serve_model.h"

#include <fstream>

#include "bench/common/child_process.h"
#include "bench/common/random_model.h"
#include "octavo/base/error.h"

namespace octavo::bench {
namespace {

namespace fs = std::filesystem;

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
std::string TokenizerJson(int64_t vocabulary_size) {
  nlohmann::json vocabulary, merges = nlohmann::json::array();
  const std::vector<std::string> characters = ByteCharacters();
  int64_t id = 0;
  for (const std::string& character : characters) vocabulary[character] = id++;
  for (int64_t pair = 0; id < vocabulary_size - 1; ++pair) {
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

void WriteFloats(const fs::path& folder, int64_t layers) {
  const models::ModelConfig config = RandomLlama(layers);
  const auto weight = [](const Shape& shape, uint64_t seed) { return MakeBF16(shape, UniformWeights(seed)); };
  WriteModel(folder, config, weight,
             [&](CheckpointWriter& writer) { writer.AddCarried("tokenizer.json", TokenizerJson(config.vocab_size)); });
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
