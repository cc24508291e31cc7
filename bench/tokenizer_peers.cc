#include "bench/tokenizer_peers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"

namespace octavo::bench {

uint32_t Crc32(uint32_t crc, const void* data, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value % 2 != 0 ? 0xEDB88320u : 0);
      made[i] = value;
    }
    return made;
  }();
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) crc = table[(crc ^ static_cast<const unsigned char*>(data)[i]) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

TokenizerPeers::TokenizerPeers(const std::string& python, std::string folder) : folder_(std::move(folder)) {
  if (python.empty()) return;
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) ThrowUsage("cannot make a pipe");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    setenv("TOKENIZERS_PARALLELISM", "false", 1);
    setenv("RAYON_NUM_THREADS", "1", 1);
    execlp(python.c_str(), python.c_str(), OCTAVO_SOURCE_DIR "/bench/tokenizer_peers.py", nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  std::istringstream words(Ask("names"));
  for (std::string name; std::getline(words, name, ',');) names_.push_back(name);
}

TokenizerPeers::~TokenizerPeers() {
  if (to_ != nullptr) std::fclose(to_);
  if (from_ != nullptr) std::fclose(from_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

// The answer to one line; empty when the process is gone.
std::string TokenizerPeers::Ask(const std::string& command) {
  if (to_ == nullptr || std::fprintf(to_, "%s\n", command.c_str()) < 0 || std::fflush(to_) != 0) return "";
  std::string line;
  for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) line += static_cast<char>(c);
  return line;
}

void TokenizerPeers::Load(const std::string& tokenizer_json) { Ask("load " + tokenizer_json); }

void TokenizerPeers::SetCorpus(const Corpus& corpus) {
  if (names_.empty()) return;
  std::string all;
  for (const std::string& document : corpus.documents) {
    all += std::to_string(document.size());
    all += "\n";
    all += document;
  }
  PublishFile(folder_ + "/corpus", all);
  Ask("corpus " + folder_ + "/corpus");
}

std::optional<PassResult> TokenizerPeers::Pass(const char* what, size_t peer) {
  std::istringstream answer(Ask(std::string(what) + " " + std::to_string(peer)));
  PassResult result;
  if (!(answer >> result.seconds >> result.count >> result.checksum)) return std::nullopt;
  return result;
}

std::optional<PassResult> TokenizerPeers::Encode(size_t peer) { return Pass("encode", peer); }
std::optional<PassResult> TokenizerPeers::Decode(size_t peer) { return Pass("decode", peer); }

}  // namespace octavo::bench
