// Two prompts through the engine, one joining while the other runs: tokens as they come, then both texts.
// usage: example_engine MODEL PROMPT PROMPT
#include <fmt/format.h>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/engine/engine.h"
#include "octavo/engine/model_tokenizer.h"

using namespace octavo;

namespace {

constexpr int kTokens = 12;  // of each answer; the first comes from the prompt

void Run(const std::string& path, const std::vector<std::string>& prompts) {
  engine::Engine engine({.max_concurrent_decodes = 2, .threads = ChooseThreads(0)});
  engine.LoadParams(path);
  const auto tokenizer = engine.BuildTokenizer();
  engine::PrefillOptions greedy;
  greedy.sampling.temperature = 0;

  engine::DecodeState state = engine.InitDecodeState();
  std::vector<std::vector<int32_t>> texts(prompts.size());
  const auto join = [&](size_t slot) {
    texts[slot] = engine::EncodePrompt(*tokenizer, prompts[slot]);
    const engine::Engine::Prefilled prompt = engine.Prefill(texts[slot], greedy);
    engine.Insert(prompt.prefix, state, static_cast<int64_t>(slot));
    texts[slot].push_back(prompt.prefix.first()[0].token);
  };
  join(0);
  for (int step = 1; state.active(0) || state.active(1); ++step) {
    if (step == 4) join(1);
    const engine::ResultTokens result = engine.Generate(state);
    for (size_t slot = 0; slot < prompts.size(); ++slot) {
      const auto at = static_cast<int64_t>(slot);
      const engine::ResultTokens::Slot token = result.GetResultAtSlot(at);
      if (!token.error.empty()) fmt::print("slot {}: {}\n", slot, token.error);
      if (!token.valid[0]) continue;
      fmt::print("step {:2}   slot {}   token {:5}   logp {:.3f}\n", step, slot, token.tokens[0], token.log_prob[0]);
      texts[slot].push_back(token.tokens[0]);
      if (token.lengths == kTokens - 1) engine.FreeResource(state, at);
    }
  }
  for (const auto& text : texts) fmt::print("{}\n", tokenizer->Decode(text, {.skip_special = true}));
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) ThrowUsage("usage: example_engine MODEL PROMPT PROMPT");
  Run(words[1], {words[2], words[3]});
} catch (const Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return error.exit_code();
}
