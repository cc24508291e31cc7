#include "octavo/text/json_schema.h"

#include <algorithm>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/json_machine.h"
#include "octavo/text/json_schema_compile.h"
#include "octavo/text/mask_cache.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {
namespace {

using Config = JsonMachine::Config;
using Node = VocabularyBytes::Node;

// Calls `take` with each token below the nodes [begin, end) whose bytes the machine can read from `start`, which stands
// before the byte of the first node. Whenever it has read a node's byte it calls `look`.
template <typename Take, typename Look>
void Walk(const VocabularyBytes& vocabulary, JsonMachine& machine, Config start, uint32_t begin, uint32_t end,
          std::vector<Config>& path, const Take& take, const Look& look) {
  if (begin == end) return;
  const Node* nodes = vocabulary.nodes().data();
  const uint32_t base = nodes[begin].depth;
  path.assign(1, start);
  for (uint32_t at = begin; at < end;) {
    const Node& node = nodes[at];
    const size_t depth = node.depth - base;
    const Config next = machine.Step(path[depth], node.byte);
    if (next == JsonMachine::kDead) {
      at = node.end;
      continue;
    }
    path.resize(depth + 1);
    path.push_back(next);
    for (uint32_t token = node.first_token; token < nodes[at + 1].first_token; ++token) {
      take(vocabulary.tokens()[token]);
    }
    look(at, next);
    ++at;
  }
}

void SetBit(std::span<uint32_t> mask, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  if (word < mask.size()) mask[word] |= 1u << (id % 32);
}

// What follows one place whatever is below it. Counters that no token can use up are alike, so that a long text costs
// no new masks.
std::shared_ptr<const TokenMask> MaskOf(const Grammar& grammar, const VocabularyBytes& vocabulary, Frame frame) {
  const auto reach = static_cast<uint32_t>(vocabulary.longest() + 1);
  frame.need = std::min(frame.need, reach);
  if (frame.left > reach) frame.left = kNoLimit;
  const MaskCache::Key key = {grammar.id << 16 | frame.space, static_cast<uint64_t>(frame.rule) << 32 | frame.state,
                              static_cast<uint64_t>(frame.offset) << 32 | frame.phase,
                              static_cast<uint64_t>(frame.need) << 32 | frame.left};
  if (auto found = vocabulary.cache().Find(key)) return found;
  JsonMachine machine(grammar);
  auto mask = std::make_shared<TokenMask>();
  std::vector<Config> path;
  const auto end = static_cast<uint32_t>(vocabulary.nodes().size() - 1);
  Walk(
      vocabulary, machine, machine.Alone(frame), 0, end, path, [&](int32_t id) { mask->ids.push_back(id); },
      [&](uint32_t node, Config config) {
        if (machine.AtEnd(config) && vocabulary.nodes()[node].end > node + 1) mask->returns.push_back(node);
      });
  const size_t words = (static_cast<size_t>(vocabulary.size()) + 31) / 32;
  if (mask->ids.size() > words) {
    mask->words.assign(words, 0);
    for (int32_t id : mask->ids) SetBit(mask->words, id);
    mask->ids = {};
  }
  mask->ids.shrink_to_fit();
  mask->returns.shrink_to_fit();
  vocabulary.cache().Put(key, mask);
  return mask;
}

class JsonConstraint : public TokenConstraint {
 public:
  JsonConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyBytes> vocabulary,
                 std::shared_ptr<const std::vector<int32_t>> end_ids)
      : grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        end_ids_(std::move(end_ids)),
        machine_(*grammar_),
        config_(machine_.Start()) {}

  void Fill(std::span<uint32_t> mask) const override {
    if (config_ == filled_ && mask.size() == last_.size()) {
      std::copy(last_.begin(), last_.end(), mask.begin());
      return;
    }
    std::fill(mask.begin(), mask.end(), 0u);
    if (ended_) return;
    if (machine_.AtEnd(config_)) {
      for (int32_t id : *end_ids_) SetBit(mask, id);
    }
    // Walking adds sets to the machine but leaves this one where it is.
    const std::vector<uint32_t> places(machine_.nodes(config_).begin(), machine_.nodes(config_).end());
    for (uint32_t place : places) AddPlace(place, mask);
    last_.assign(mask.begin(), mask.end());
    filled_ = config_;
  }

  bool Accept(int32_t token) override {
    if (ended_) return false;
    if (std::find(end_ids_->begin(), end_ids_->end(), token) != end_ids_->end()) {
      if (!machine_.AtEnd(config_)) return false;
      ended_ = true;
      filled_ = kNone;
      return true;
    }
    const std::string_view bytes = vocabulary_->bytes(token);
    if (bytes.empty()) return false;
    Config next = config_;
    for (char byte : bytes) {
      next = machine_.Step(next, static_cast<uint8_t>(byte));
      if (next == JsonMachine::kDead) return false;
    }
    config_ = next;
    if (machine_.configs() > kMostConfigs) {
      config_ = machine_.Shrink(config_);
      filled_ = kNone;
    }
    return true;
  }

  bool Complete() const override { return ended_ || machine_.AtEnd(config_); }

  std::unique_ptr<TokenConstraint> Clone() const override {
    auto copy = std::make_unique<JsonConstraint>(*this);
    copy->config_ = copy->machine_.Shrink(copy->config_);
    copy->filled_ = kNone;
    return copy;
  }

 private:
  static constexpr Config kNone = -3;
  static constexpr size_t kMostConfigs = 1024;  // 1 KiB each

  void AddPlace(uint32_t place, std::span<uint32_t> mask) const {
    const std::shared_ptr<const TokenMask> own = MaskOf(*grammar_, *vocabulary_, machine_.node(place).frame);
    for (size_t i = 0; i < std::min(mask.size(), own->words.size()); ++i) mask[i] |= own->words[i];
    for (int32_t id : own->ids) SetBit(mask, id);
    if (own->returns.empty()) return;
    const Config below = machine_.Return(place);
    if (below == JsonMachine::kDead) return;
    for (uint32_t node : own->returns) {
      Walk(
          *vocabulary_, machine_, below, node + 1, vocabulary_->nodes()[node].end, path_,
          [&](int32_t id) { SetBit(mask, id); }, [](uint32_t, Config) {});
    }
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const VocabularyBytes> vocabulary_;
  std::shared_ptr<const std::vector<int32_t>> end_ids_;
  mutable JsonMachine machine_;  // remembers what it has worked out
  Config config_;
  bool ended_ = false;
  mutable std::vector<Config> path_;
  mutable std::vector<uint32_t> last_;  // the mask of filled_: a text inside a string stays in one place
  mutable Config filled_ = kNone;
};

std::shared_ptr<const TokenConstraint> Make(Grammar grammar, std::shared_ptr<const VocabularyBytes> vocabulary,
                                            const JsonSchemaOptions& options) {
  auto end_ids =
      std::make_shared<const std::vector<int32_t>>(options.end_ids.empty() ? vocabulary->end_ids() : options.end_ids);
  return std::make_shared<JsonConstraint>(std::make_shared<const Grammar>(std::move(grammar)), std::move(vocabulary),
                                          std::move(end_ids));
}

}  // namespace

std::shared_ptr<const TokenConstraint> CompileJsonSchema(std::string_view schema_json,
                                                         std::shared_ptr<const VocabularyBytes> vocabulary,
                                                         const JsonSchemaOptions& options) {
  if (schema_json.size() > options.most_bytes) {
    ThrowUsage("schema: {} bytes, at most {} are accepted", schema_json.size(), options.most_bytes);
  }
  JsonValue schema;
  try {
    schema = ParseJson(schema_json, "schema");
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, error.message(), error.hint());
  }
  return Make(CompileSchema(schema), std::move(vocabulary), options);
}

std::shared_ptr<const TokenConstraint> CompileJsonObject(std::shared_ptr<const VocabularyBytes> vocabulary,
                                                         const JsonSchemaOptions& options) {
  return Make(AnyObjectGrammar(), std::move(vocabulary), options);
}

}  // namespace octavo::text
