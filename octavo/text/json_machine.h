// Runs a grammar over bytes: all the ways in which the text so far can be read, as a set of places with what is called
// below each. Places that differ only below share what they have in common, so that nested alternatives cost the sum
// and not the product. Sets and the steps between them are remembered: a byte that was seen before is one look-up.
// Used by json_schema.cc, one machine per sequence and one for each mask that is made. Not for several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "octavo/text/json_grammar.h"

namespace octavo::text {

class JsonMachine {
 public:
  using Config = int32_t;
  static constexpr Config kDead = -1;
  static constexpr uint32_t kBottom = UINT32_MAX;  // the place below the first rule

  // A place: a frame and the places to which it can come back.
  struct Node {
    Frame frame;
    std::vector<uint32_t> parents;  // sorted

    bool operator==(const Node&) const = default;
  };

  explicit JsonMachine(const Grammar& grammar) : grammar_(&grammar) {}

  // The beginning of a document.
  Config Start();
  // Only the frame itself, over the bottom: what it calls is not in the set before the first byte.
  Config Alone(const Frame& frame);
  // kDead when the byte cannot follow.
  Config Step(Config config, uint8_t byte) {
    const Config next = table_[static_cast<size_t>(config) * 256 + byte];
    return next == kUnknown ? Compute(config, byte) : next;
  }
  // After the rule of the node has ended: kDead when only the bottom is below.
  Config Return(uint32_t node);

  // The bottom has been reached: the text may end here.
  bool AtEnd(Config config) const { return configs_[static_cast<size_t>(config)].at_end; }
  std::span<const uint32_t> nodes(Config config) const { return configs_[static_cast<size_t>(config)].nodes; }
  const Node& node(uint32_t node) const { return nodes_[node]; }

  // Forgets everything but one set, whose number is returned. For a machine that has grown.
  size_t configs() const { return configs_.size(); }
  Config Shrink(Config keep);

 private:
  static constexpr Config kUnknown = -2;
  // Ambiguity beyond this is refused: the text cannot go on.
  static constexpr size_t kMostPlaces = 2048;

  struct Set {
    std::vector<uint32_t> nodes;  // sorted
    bool at_end = false;

    bool operator==(const Set&) const = default;
  };
  struct Hash {
    size_t operator()(const Node& node) const;
    size_t operator()(const Set& set) const;
  };
  // A set under construction.
  using Places = std::map<Frame, std::vector<uint32_t>>;

  Config Compute(Config config, uint8_t byte);
  void Enter(uint32_t rule, const std::vector<uint32_t>& parents, Places& places) const;
  void AddReturns(const Node& node, Places& places, bool& at_end) const;
  Config Finish(Places places, bool at_end);
  uint32_t InternNode(Node node);
  Config InternSet(Set set);

  const Grammar* grammar_;
  std::vector<Node> nodes_;
  std::vector<Set> configs_;
  std::vector<Config> table_;  // 256 for each set
  std::unordered_map<Node, uint32_t, Hash> node_ids_;
  std::unordered_map<Set, Config, Hash> config_ids_;
  std::unordered_map<uint32_t, Config> returns_;
};

}  // namespace octavo::text
