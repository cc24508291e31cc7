// `./run bench engine`: prefill and decode of a random llama through the engine's runner, everything included, beside
// llama.cpp on the same weights and the read bandwidth of the machine, all in one run and in turns. Then many requests
// through the scheduler, and how long a stored model takes to its first token. The head is quantized like the rest.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/driver.h"
#include "bench/engine_model.h"
#include "bench/engine_peer.h"
#include "bench/engine_service.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/args.h"
#include "octavo/kernels/limits.h"

namespace octavo::bench {
namespace {

// Samples of one figure, larger is better.
struct Figure {
  std::vector<double> samples;

  double At(double share) const {
    if (samples.empty()) return 0;
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
  double median() const { return At(0.5); }
  double spread() const { return median() > 0 ? (At(0.75) - At(0.25)) / median() : 0; }
};

// One line of the table: ours against the peer's.
struct Row {
  const char* name;
  double bar;  // ratio that is asked for; 0: none
  Figure ours, theirs;
};

class Table {
 public:
  Table(bool json, std::string recipe, std::string peer)
      : json_(json), recipe_(std::move(recipe)), peer_(std::move(peer)) {}

  void Print(const Row& row, const char* more = "") const {
    const double ours = row.ours.median(), theirs = row.theirs.median();
    if (json_) {
      nlohmann::json line{{"recipe", recipe_},
                          {"figure", row.name},
                          {"tok_per_s", ours},
                          {"spread", row.ours.spread()},
                          {"peer", peer_},
                          {"peer_tok_per_s", theirs},
                          {"peer_spread", row.theirs.spread()},
                          {"bar", row.bar}};
      if (theirs > 0) line["ratio"] = ours / theirs;
      std::printf("%s\n", line.dump().c_str());
      return;
    }
    std::printf("%-9s %-12s octavo %8.2f tok/s (spread %4.1f %%)", recipe_.c_str(), row.name, ours,
                100 * row.ours.spread());
    if (theirs > 0) {
      std::printf("   %s %8.2f (%4.1f %%)   ratio %.2f", peer_.c_str(), theirs, 100 * row.theirs.spread(),
                  ours / theirs);
      if (row.bar > 0) std::printf(" (bar %.1f)", row.bar);
    }
    std::printf("%s\n", more);
    std::fflush(stdout);
  }

 private:
  bool json_;
  std::string recipe_, peer_;
};

struct Options {
  bool json;
  int threads, rounds, steps, requests;
  std::string figures;  // names of rows to measure, with commas around them
  int64_t layers;
  bool first_byte;
};

void PrintObject(const Options& options, const nlohmann::json& object, const std::string& text) {
  std::printf("%s\n", options.json ? object.dump().c_str() : text.c_str());
  std::fflush(stdout);
}

const char* PeerFormat(const std::string& recipe) {
  return recipe.starts_with("int8") ? "Q8_0" : recipe == "float" ? "" : "Q4_0";
}

// The int4 model of the peer has a scale for each 32 weights whatever the recipe's groups are.
void WritePeerModel(const std::string& recipe, const BenchModel& model, const Options& options, ThreadPool& pool,
                    const std::filesystem::path& file) {
  if (recipe == "w4a8g64" || recipe == "w4a8") {
    model.WriteGguf(file);
    return;
  }
  BenchModel(recipe.starts_with("int8") ? "int8" : "w4a8", options.layers, pool).WriteGguf(file);
}

void RunRecipe(const std::string& recipe, const Options& options, const LlamaPeer& peer, ThreadPool& pool) {
  const TempFolder folder;
  const std::string gguf = (folder / "model.gguf").string();
  BenchModel model(recipe, options.layers, pool);
  const bool against = peer.any() && *PeerFormat(recipe) != '\0';
  if (against) WritePeerModel(recipe, model, options, pool, gguf);
  model.Pack(std::max(9, options.requests));
  const std::string name = against ? fmt::format("llama.cpp {}", PeerFormat(recipe)) : "";
  PrintObject(options,
              {{"recipe", recipe},
               {"parameters", model.parameters()},
               {"bytes", model.stored_bytes()},
               {"pack_seconds", model.pack_seconds()}},
              fmt::format("\n{}: {:.3f} B parameters, {:.2f} GiB, packed in {:.2f} s", recipe,
                          static_cast<double>(model.parameters()) / 1e9,
                          static_cast<double>(model.stored_bytes()) / (1 << 30), model.pack_seconds()));
  const bool integer = recipe == "int8" || recipe.starts_with("w4a8");
  Row prefill{"prefill 512", integer ? 1.9 : 0, {}, {}}, one{"decode 1", integer ? 1.1 : 0, {}, {}},
      eight{"decode 8", recipe == "int8" ? 1.6 : 0, {}, {}};
  Figure share, weights, reads;  // of one stream, turn by turn
  nlohmann::json turns = nlohmann::json::array();
  kernels::ReadMeter meter(pool, kernels::ChooseIsa().isa);
  const auto wants = [&](const char* figure) {
    return options.figures.find(fmt::format(",{},", figure)) != std::string::npos;
  };
  model.Prefill(64);
  for (int round = 0; round < options.rounds; ++round) {
    if (wants("prefill")) {
      prefill.ours.samples.push_back(512 / model.Prefill(512));
      if (against) prefill.theirs.samples.push_back(peer.Prefill(gguf, 512));
    }
    if (wants("decode1")) {
      for (const ReadTurn& turn : model.DecodeBesideReads(options.steps / 2, meter)) {
        share.samples.push_back(turn.share());
        weights.samples.push_back(turn.share_of_weights());
        reads.samples.push_back(turn.read_gb_per_s);
        turns.push_back({turn.tok_per_s, turn.read_gb_per_s});
      }
      one.ours.samples.push_back(1 / model.Decode(1, options.steps));
      if (against) one.theirs.samples.push_back(peer.Decode(gguf, options.steps));
    }
    if (wants("decode8")) {
      eight.ours.samples.push_back(8 / model.Decode(8, options.steps));
      if (against) eight.theirs.samples.push_back(peer.DecodeMany(gguf, 8, options.steps));
    }
  }
  const Table table(options.json, recipe, name);
  if (wants("prefill")) table.Print(prefill);
  if (wants("decode1")) {
    table.Print(one, fmt::format("   {:.1f} % ({:.1f} … {:.1f}) of reads of {:.1f} GB/s ({:.1f} … {:.1f}; quartiles), "
                                 "bar 85 %; {:.1f} % by weights alone",
                                 100 * share.median(), 100 * share.At(0.25), 100 * share.At(0.75), reads.median(),
                                 reads.At(0.25), reads.At(0.75), 100 * weights.median())
                         .c_str());
    if (options.json) {
      PrintObject(options,
                  {{"recipe", recipe},
                   {"figure", "read share"},
                   {"share", share.median()},
                   {"share_of_weights", weights.median()},
                   {"share_quartiles", {share.At(0.25), share.At(0.75)}},
                   {"read_gb_per_s", reads.median()},
                   {"read_quartiles", {reads.At(0.25), reads.At(0.75)}},
                   {"turns", turns}},
                  "");
    }
  }
  if (wants("decode8")) table.Print(eight);
  if (options.requests > 0) {
    Figure alone, many;
    for (int round = 0; round < options.rounds; ++round) {
      const Throughput found = ServeTogether(model.runner(), options.requests);
      alone.samples.push_back(found.one);
      many.samples.push_back(found.many);
    }
    PrintObject(options,
                {{"recipe", recipe},
                 {"figure", "requests"},
                 {"requests", options.requests},
                 {"one_tok_per_s", alone.median()},
                 {"many_tok_per_s", many.median()},
                 {"ratio", many.median() / alone.median()}},
                fmt::format("{:<9} {} requests {:.1f} tok/s, one alone {:.1f}   ratio {:.2f} (bar 4.0)", recipe,
                            options.requests, many.median(), alone.median(), many.median() / alone.median()));
  }
}

// In a scope of its own: nothing else of the model is in memory.
void RunFirstByte(const std::string& recipe, const Options& options) {
  const TempFolder folder;
  {
    ThreadPool pool(options.threads);
    BenchModel(recipe, options.layers, pool).WriteCheckpoint(folder / "stored");
  }
  Figure open, total;
  for (int round = 0; round < options.rounds; ++round) {
    const FirstByte found = TimeFirstByte(folder / "stored", options.threads);
    open.samples.push_back(found.open);
    total.samples.push_back(found.total);
  }
  PrintObject(options,
              {{"recipe", recipe},
               {"figure", "first byte"},
               {"open_seconds", open.median()},
               {"seconds", total.median()},
               {"spread", total.spread()}},
              fmt::format("{:<9} stored model to first token {:.2f} s (bar 1.0), open after {:.2f} s, spread {:.0f} %",
                          recipe, total.median(), open.median(), 100 * total.spread()));
}

int Main(const Args& args) {
  Options options;
  options.json = args.Switch("json");
  options.threads = static_cast<int>(args.Int("threads", 2, 1, 64));
  options.layers = args.Int("layers", 16, 1, 64);
  options.steps = static_cast<int>(args.Int("steps", 32, 1, 1000));
  options.rounds = static_cast<int>(args.Int("rounds", 5, 1, 100));
  options.requests = static_cast<int>(args.Int("requests", 16, 0, 64));
  options.figures = "," + args.Text("figures", "prefill,decode1,decode8") + ",";
  options.first_byte = args.Int("first_byte", 1, 0, 1) != 0;
  const LlamaPeer peer(args.Text("llama_bench", ""), args.Text("llama_batched_bench", ""), options.threads);
  if (!peer.any() && !options.json) {
    std::printf("llama.cpp is skipped: llama_bench=PATH and llama_batched_bench=PATH name its programs\n");
  }
  ThreadPool pool(options.threads);
  const std::string recipes = args.Text("recipes", "int8,w4a8") + ",";
  for (size_t at = 0; at < recipes.size();) {
    const size_t end = recipes.find(',', at);
    const std::string recipe = recipes.substr(at, end - at);
    at = end + 1;
    RunRecipe(recipe, options, peer, pool);
    if (options.first_byte && recipe != "float") RunFirstByte(recipe, options);
  }
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench engine",
      .synopsis = "[recipes=int8,w4a8] [llama_bench=PATH llama_batched_bench=PATH] [rounds=5] [threads=2]",
      .summary = "prefill, decode, throughput and first token of a random llama, against llama.cpp",
      .details = "",
      .options = {{"recipes", "A,B", "int8, int8w, int4w, w4a8, w4a8g64, w4a8g32, float"},
                  {"llama_bench", "PATH", "llama.cpp's llama-bench; without it there is no peer"},
                  {"llama_batched_bench", "PATH", "its llama-batched-bench, for several streams"},
                  {"layers", "N", "decoder layers (16: 0.85 B parameters)"},
                  {"rounds", "N", "of turns between the contenders"},
                  {"steps", "N", "decode steps of a turn"},
                  {"figures", "A,B", "prefill, decode1, decode8 (all)"},
                  {"requests", "N", "through the scheduler at once; 0: not measured"},
                  {"first_byte", "0|1", "whether a stored model is opened"}},
  };
  return octavo::bench::RunDriver(spec, argc, argv, octavo::bench::Main);
}
