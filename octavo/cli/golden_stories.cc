// llama2.c models with the text they write: a folder with NAME.bin, a token list tok*.bin and greedy-N.txt, what the
// model writes greedily in N steps from the beginning of a text. Runs through the engine, token by token, and the whole
// text again as one prompt: the same tokens must be the likeliest.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/engine/model_runner.h"
#include "octavo/kernels/isa.h"
#include "octavo/weights/load_model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kBegin = 1;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> Matching(const fs::path& folder, std::string_view begin, std::string_view end) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool Accepts(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !Matching(folder, "greedy-", ".txt").empty() &&
         !Matching(folder, "tok", ".bin").empty();
}

// The token list of llama2.c: the longest piece, then for each token a score, a length and its bytes.
std::vector<std::string> ReadPieces(const fs::path& path) {
  const std::string bytes = ReadAll(path);
  std::vector<std::string> pieces;
  for (size_t at = 4; at + 8 <= bytes.size();) {
    int32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    at += 8;
    if (length < 0 || static_cast<size_t>(length) > bytes.size() - at)
      ThrowFile("{}: a token past the end", path.string());
    pieces.push_back(bytes.substr(at, static_cast<size_t>(length)));
    at += static_cast<size_t>(length);
  }
  return pieces;
}

std::string TextOf(const std::vector<std::string>& pieces, const std::vector<int32_t>& tokens) {
  std::string text;
  int32_t before = kBegin;
  for (int32_t token : tokens) {
    std::string piece = token < static_cast<int32_t>(pieces.size()) ? pieces[static_cast<size_t>(token)] : "?";
    if (before == kBegin && piece.starts_with(' ')) piece.erase(0, 1);
    if (piece.size() == 6 && piece.starts_with("<0x")) {
      piece = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    text += piece;
    before = token;
  }
  return text;
}

int32_t Likeliest(const Tensor& logits, int64_t row) {
  const Tensor one = logits.Select(0, row).Contiguous();
  const auto values = one.Values<float>();
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::string Problem(const fs::path& model_file, const fs::path& text_file, const std::vector<std::string>& pieces,
                    ThreadPool& pool) {
  const kernels::Isa isa = kernels::ChooseIsa().isa;
  const weights::LoadedModel loaded = weights::LoadModel(weights::OpenStored(model_file), {}, pool, isa);
  const auto runner = engine::MakeRunner({*loaded.model, nullptr, nullptr, pool, isa}, {.prefix_cache = false});
  const int steps = std::stoi(text_file.stem().string().substr(7));
  std::vector<int32_t> tokens = {kBegin};
  const engine::SequenceId id = runner->Open(tokens, 0, "", nullptr);
  for (int step = 0; step < steps; ++step) {
    const engine::Work work{id, {&tokens.back(), 1}};
    const int32_t next = Likeliest(runner->Step({&work, 1}), 0);
    if (next == kBegin) break;
    tokens.push_back(next);
  }
  const std::vector<int32_t> written(tokens.begin() + 1, tokens.end());
  std::string text = TextOf(pieces, written), expected = ReadAll(text_file);
  while (!expected.empty() && expected.back() == '\n') expected.pop_back();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  // The recording may end a token earlier or later, depending on how steps are counted.
  const size_t common = std::min(text.size(), expected.size());
  if (text.substr(0, common) != expected.substr(0, common) || common + 16 < expected.size()) {
    size_t at = 0;
    while (at < common && text[at] == expected[at]) ++at;
    return fmt::format("the text differs at byte {}: …{}", at, text.substr(at, 40));
  }
  const engine::SequenceId whole = runner->Open(tokens, 0, "", nullptr);
  const engine::Work work{whole, std::span(tokens).first(tokens.size() - 1), true};
  const Tensor logits = runner->Step({&work, 1});
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (Likeliest(logits, static_cast<int64_t>(i)) != tokens[i + 1]) {
      return fmt::format("as one prompt another token is likeliest after {}", i);
    }
  }
  return "";
}

GoldenFolderResult Run(const fs::path& folder, ThreadPool& pool) {
  GoldenFolderResult result;
  const fs::path list = Matching(folder, "tok", ".bin").front();
  for (const fs::path& text : Matching(folder, "greedy-", ".txt")) {
    for (const fs::path& model : Matching(folder, folder.filename().string(), ".bin")) {
      if (model.stem() != folder.filename()) continue;  // quantized forms write something else
      std::string problem;
      try {
        problem = Problem(model, text, ReadPieces(list), pool);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      if (problem.empty()) {
        ++result.passed;
      } else {
        result.failures.push_back({model.filename().string(), problem});
      }
    }
  }
  return result;
}

}  // namespace

GoldenFolderKind StoriesFolderKind() { return {"llama2.c texts", Accepts, Run}; }

}  // namespace octavo
