#include "bench/tokenizer_texts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "octavo/text/tokenizer_json.h"
#include "octavo/text/unicode.h"

namespace octavo::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDocument = 8192;

// Documents end at ends of lines.
Corpus Cut(std::string name, std::string_view text) {
  Corpus corpus{.name = std::move(name), .documents = {}, .bytes = text.size()};
  while (!text.empty()) {
    size_t end = text.size() <= kDocument ? text.size() : text.find('\n', kDocument);
    if (end == std::string_view::npos || end > 4 * kDocument) {
      end = std::min(text.size(), 4 * kDocument);
      while (end < text.size() && text::IsContinuation(text[end])) ++end;
    }
    end = std::min(end + 1, text.size());
    while (end < text.size() && text::IsContinuation(text[end])) ++end;
    corpus.documents.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return corpus;
}

std::string OwnFiles(const std::vector<std::string_view>& extensions, size_t most) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(OCTAVO_SOURCE_DIR)) {
    const std::string path = entry.path().lexically_relative(OCTAVO_SOURCE_DIR).string();
    if (path.starts_with("build") || path.starts_with(".") || !entry.is_regular_file()) continue;
    if (std::find(extensions.begin(), extensions.end(), entry.path().extension().string()) != extensions.end()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    if (text.size() < most) text += text::ReadWholeFile(file.string(), size_t{64} << 20);
  }
  // Special tokens that the sources mention would be read by some contenders and not by others.
  for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at)) text.insert(at + 1, " ");
  return text::ReplaceInvalidUtf8(text);
}

// Draws an index with the frequency of words in a language: about one over its rank.
size_t Rank(std::mt19937_64& engine, size_t count) {
  const double uniform = static_cast<double>(engine() >> 11) * 0x1p-53;
  return std::min(count - 1, static_cast<size_t>(std::pow(static_cast<double>(count), uniform)) - 1);
}

std::string MakeEnglish(size_t bytes) {
  std::map<std::string, size_t> counts;
  std::string word;
  for (const char c : OwnFiles({".md", ".h", ".cc"}, size_t{8} << 20)) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      word += c;
    } else if (!word.empty()) {
      if (word.size() > 1 || word == "a" || word == "I") ++counts[word];
      word.clear();
    }
  }
  std::vector<std::pair<size_t, std::string>> words;
  for (const auto& [text, count] : counts) words.emplace_back(count, text);
  std::sort(words.rbegin(), words.rend());
  std::mt19937_64 engine(1);
  std::string text;
  while (text.size() < bytes) {
    const size_t length = 4 + engine() % 20;
    for (size_t i = 0; i < length; ++i) {
      if (i > 0) text += engine() % 12 == 0 ? ", " : " ";
      if (engine() % 40 == 0) {
        text += std::to_string(engine() % 2000);
      } else {
        text += words[Rank(engine, words.size())].second;
      }
    }
    text += engine() % 6 == 0 ? ".\n\n" : ". ";
  }
  return text;
}

std::string MakeCjk(size_t bytes) {
  std::mt19937_64 engine(2);
  std::vector<char32_t> han;
  for (char32_t c = 0x4E00; c < 0x9000; ++c) han.push_back(c);
  std::shuffle(han.begin(), han.end(), engine);
  std::string text;
  while (text.size() < bytes) {
    const size_t length = 5 + engine() % 30;
    const auto script = engine() % 4;
    for (size_t i = 0; i < length; ++i) {
      char32_t c = han[Rank(engine, 3000)];
      if (script == 1 && engine() % 2 == 0) c = 0x3042 + static_cast<char32_t>(Rank(engine, 80));
      if (script == 2) c = 0xAC00 + static_cast<char32_t>(Rank(engine, 3000));
      text::AppendUtf8(c, text);
      if (script == 2 && engine() % 3 == 0) text += ' ';
    }
    text += engine() % 5 == 0 ? "。\n" : "，";
  }
  return text;
}

}  // namespace

Corpus ReadCorpus(const std::string& name, const std::string& path, size_t most) {
  std::string text = text::ReplaceInvalidUtf8(text::ReadWholeFile(path, size_t{1} << 30));
  if (text.size() > most) {
    while (most > 0 && text::IsContinuation(text[most])) --most;
    text.resize(most);
  }
  return Cut(name, text);
}

Corpus MakeCorpus(const std::string& name, size_t bytes) {
  if (name == "english") return Cut(name, MakeEnglish(bytes));
  if (name == "cjk") return Cut(name, MakeCjk(bytes));
  std::string code = OwnFiles({".cc", ".h", ".py", ".txt", ".cmake"}, bytes);
  while (code.size() > bytes || (!code.empty() && text::IsContinuation(code.back()))) code.pop_back();
  return Cut(name, code);
}

}  // namespace octavo::bench
