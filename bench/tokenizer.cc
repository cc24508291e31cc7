// ./run bench tokenizer: encoding and decoding against Hugging Face's tokenizers and tiktoken on one thread, on ids
// that were compared first; long runs of one character; round trips.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/common/driver.h"
#include "bench/tokenizer_peers.h"
#include "bench/tokenizer_runs.h"
#include "bench/tokenizer_texts.h"
#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/args.h"
#include "octavo/text/bpe_trainer.h"
#include "octavo/text/tokenizer.h"

namespace octavo::bench {
namespace {

namespace fs = std::filesystem;

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Our own passes over a corpus.
class Ours {
 public:
  explicit Ours(const std::string& path) : tokenizer_(text::LoadTokenizer(path)) {}

  PassResult Encode(const Corpus& corpus) {
    PassResult result;
    ids_.clear();
    const double start = ProcessorSeconds();
    for (const std::string& document : corpus.documents) ids_.push_back(tokenizer_->Encode(document));
    result.seconds = ProcessorSeconds() - start;
    for (const auto& ids : ids_) {
      result.count += ids.size();
      result.checksum = Crc32(result.checksum, ids.data(), ids.size() * sizeof ids[0]);
    }
    return result;
  }

  PassResult Decode() {
    PassResult result;
    std::vector<std::string> texts;
    const double start = ProcessorSeconds();
    for (const auto& ids : ids_) texts.push_back(tokenizer_->Decode(ids));
    result.seconds = ProcessorSeconds() - start;
    for (const std::string& text : texts) {
      result.count += text.size();
      result.checksum = Crc32(result.checksum, text.data(), text.size());
    }
    return result;
  }

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<std::vector<int32_t>> ids_;
};

// One row: a contender's encoding and decoding of one corpus.
struct Row {
  std::string who;
  std::vector<double> encode, decode;
  PassResult encoded, decoded;
  bool able = true;
};

class TokenizerBench {
 public:
  TokenizerBench(const Args& args, TokenizerPeers& peers)
      : json_(args.Switch("json")), rounds_(args.Int("rounds", 5, 1, 100)), peers_(peers) {}

  void Run(const std::string& name, const std::string& path, const std::vector<Corpus>& corpora) {
    Ours ours(path);
    peers_.Load(path);
    for (const Corpus& corpus : corpora) {
      peers_.SetCorpus(corpus);
      std::vector<Row> rows(1 + peers_.names().size());
      rows[0].who = "octavo";
      for (size_t i = 0; i < peers_.names().size(); ++i) rows[i + 1].who = peers_.names()[i];
      for (int64_t round = -1; round < rounds_; ++round) {  // the first one warms up
        for (size_t i = 0; i < rows.size(); ++i) Turn(ours, corpus, i, round >= 0, rows[i]);
      }
      Report(name, corpus, rows);
    }
  }

 private:
  void Turn(Ours& ours, const Corpus& corpus, size_t index, bool counts, Row& row) {
    if (!row.able) return;
    const std::optional<PassResult> encoded = index == 0 ? ours.Encode(corpus) : peers_.Encode(index - 1);
    const std::optional<PassResult> decoded = !encoded     ? std::nullopt
                                              : index == 0 ? std::optional(ours.Decode())
                                                           : peers_.Decode(index - 1);
    if (!decoded) {
      row.able = false;
      return;
    }
    row.encoded = *encoded;
    row.decoded = *decoded;
    if (!counts) return;
    row.encode.push_back(encoded->seconds);
    row.decode.push_back(decoded->seconds);
  }

  void Report(const std::string& name, const Corpus& corpus, const std::vector<Row>& rows) {
    double best_encode = 1e300, best_decode = 1e300;
    for (size_t i = 1; i < rows.size(); ++i) {
      if (!rows[i].able) continue;
      best_encode = std::min(best_encode, Median(rows[i].encode));
      best_decode = std::min(best_decode, Median(rows[i].decode));
    }
    const auto megabytes = static_cast<double>(corpus.bytes) / 1e6;
    for (const Row& row : rows) {
      if (!row.able) continue;
      const double encode = megabytes / Median(row.encode), decode = megabytes / Median(row.decode);
      const bool same = row.encoded.checksum == rows[0].encoded.checksum && row.encoded.count == rows[0].encoded.count;
      const double encode_ratio = best_encode < 1e299 ? best_encode / Median(row.encode) : 0;
      const double decode_ratio = best_decode < 1e299 ? best_decode / Median(row.decode) : 0;
      if (json_) {
        const nlohmann::json line = {{"event", "tokenizer"},     {"tokenizer", name},        {"corpus", corpus.name},
                                     {"who", row.who},           {"encode_mb_s", encode},    {"decode_mb_s", decode},
                                     {"encode_x", encode_ratio}, {"decode_x", decode_ratio}, {"ids", row.encoded.count},
                                     {"same_ids", same}};
        fmt::print("{}\n", line.dump());
      } else {
        fmt::print(
            "{:<10} {:<8} {:5.1f} MB   {:<18} encode {:7.1f} MB/s {:5.2f}x   decode {:7.1f} MB/s {:5.2f}x   {} ids{}\n",
            name, corpus.name, megabytes, row.who, encode, encode_ratio, decode, decode_ratio, row.encoded.count,
            same ? "" : "  OTHER IDS than octavo");
      }
      std::fflush(stdout);
    }
  }

  bool json_;
  int64_t rounds_;
  TokenizerPeers& peers_;
};

std::vector<Corpus> Corpora(const Args& args) {
  const size_t shrink = args.Switch("quick") ? 10 : 1;
  std::vector<Corpus> corpora;
  for (const auto& [name, bytes] :
       std::vector<std::pair<std::string, size_t>>{{"english", 10'000'000}, {"code", 2'000'000}, {"cjk", 2'000'000}}) {
    const std::string path = args.Text(name, "");
    corpora.push_back(path.empty() ? MakeCorpus(name, bytes / shrink) : ReadCorpus(name, path, bytes / shrink));
  }
  return corpora;
}

// The tokenizer.json files to measure: those given, or one trained on the texts.
std::vector<std::pair<std::string, std::string>> Tokenizers(const Args& args, const std::vector<Corpus>& corpora,
                                                            const TempFolder& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  if (const std::string given = args.Text("tokenizers", ""); !given.empty()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(given)) {
      const fs::path file = entry.path() / "tokenizer.json";
      if (fs::is_regular_file(file)) found.emplace_back(entry.path().filename().string(), file.string());
    }
    std::sort(found.begin(), found.end());
    if (found.empty()) ThrowUsage("{}: no folder in it has a tokenizer.json", given);
    return found;
  }
  std::vector<std::string_view> texts;
  for (const Corpus& corpus : corpora) texts.insert(texts.end(), corpus.documents.begin(), corpus.documents.end());
  ThreadPool pool(ChooseThreads(0));
  for (const char* pattern : {"gpt2", "llama3"}) {
    text::BpeTrainerOptions options;
    options.vocabulary_size = 32768;
    options.pattern = pattern;
    fs::create_directories(folder / pattern);
    const fs::path file = folder / pattern / "tokenizer.json";
    PublishFile(file, text::TokenizerJson(text::TrainBpe(texts, options, pool)));
    found.emplace_back(pattern, file.string());
  }
  return found;
}

int RoundTrips(const Args& args, const std::vector<std::pair<std::string, std::string>>& tokenizers) {
  const int64_t count = args.Int("roundtrip", 1, 1, INT64_MAX);
  int64_t all = 0;
  for (const auto& [name, path] : tokenizers) {
    const auto tokenizer = text::LoadTokenizer(path);
    const int64_t failures = CountRoundTripFailures(*tokenizer, count, 1);
    fmt::print("round trips   {:<10} {} texts   {} failed\n", name, count, failures);
    all += failures;
  }
  return all == 0 ? 0 : 3;
}

int Run(const Args& args) {
  const TempFolder folder;
  const std::vector<Corpus> corpora = Corpora(args);
  const auto tokenizers = Tokenizers(args, corpora, folder);
  if (args.Has("roundtrip")) return RoundTrips(args, tokenizers);
  TokenizerPeers peers(args.Text("python", "python3"), folder.path().string());
  if (peers.names().empty()) {
    fmt::print(stderr,
               "no peers: the Python packages tokenizers and tiktoken are not installed; timing octavo alone\n");
  }
  TokenizerBench bench(args, peers);
  for (const auto& [name, path] : tokenizers) bench.Run(name, path, corpora);
  const double slowest = TimeEqualCharacters(args.Switch("json"));
  if (!args.Switch("json")) fmt::print("10^6 equal characters   slowest of all {:.3f} s (bar 0.5 s)\n", slowest);
  return 0;
}

VerbSpec Spec() {
  VerbSpec spec;
  spec.name = "tokenizer";
  spec.synopsis = "[english=FILE] [code=FILE] [cjk=FILE] [tokenizers=DIR] [--json]";
  spec.summary = "tokenizers on one thread: processor time of encoding and decoding, against the optional Python peers";
  spec.details =
      "Without files the texts are made from the project's own pages and sources, and the tokenizers are trained on "
      "them.\n"
      "All contenders get the same documents of about 8 KB and take turns; medians of processor time are shown, the\n"
      "ratio is to the faster peer. `roundtrip=N` checks decode(encode(x)) = x on N random texts instead.";
  spec.options = {{"english", "FILE", "10 MB of it are used"},
                  {"code", "FILE", "2 MB"},
                  {"cjk", "FILE", "2 MB"},
                  {"tokenizers", "DIR", "folders with a tokenizer.json each"},
                  {"rounds", "N", "turns of each contender (default 5)"},
                  {"quick", "", "a tenth of the text"},
                  {"roundtrip", "N", "random texts to encode and decode instead"},
                  {"python", "PROGRAM", "the Python with the peers' packages (default python3)"}};
  return spec;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  return bench::RunDriver(bench::Spec(), argc, argv, bench::Run);
}
