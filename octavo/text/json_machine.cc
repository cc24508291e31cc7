#include "octavo/text/json_machine.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace octavo::text {
namespace {

void Mix(size_t& hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 29;
}

// Adds sorted parents to sorted parents.
void Merge(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.empty()) {
    into = from;
    return;
  }
  std::vector<uint32_t> all;
  std::set_union(into.begin(), into.end(), from.begin(), from.end(), std::back_inserter(all));
  into = std::move(all);
}

}  // namespace

size_t JsonMachine::Hash::operator()(const Node& node) const {
  size_t hash = node.parents.size();
  Mix(hash,
      static_cast<uint64_t>(node.frame.rule) << 32 | static_cast<uint32_t>(node.frame.phase << 16) | node.frame.space);
  Mix(hash, static_cast<uint64_t>(node.frame.state) << 32 | node.frame.offset);
  Mix(hash, static_cast<uint64_t>(node.frame.need) << 32 | node.frame.left);
  for (uint32_t parent : node.parents) Mix(hash, parent);
  return hash;
}

size_t JsonMachine::Hash::operator()(const Set& set) const {
  size_t hash = set.at_end;
  for (uint32_t node : set.nodes) Mix(hash, node);
  return hash;
}

uint32_t JsonMachine::InternNode(Node node) {
  const auto [place, fresh] = node_ids_.try_emplace(node, static_cast<uint32_t>(nodes_.size()));
  if (fresh) nodes_.push_back(std::move(node));
  return place->second;
}

JsonMachine::Config JsonMachine::InternSet(Set set) {
  const auto [place, fresh] = config_ids_.try_emplace(set, static_cast<Config>(configs_.size()));
  if (fresh) {
    configs_.push_back(std::move(set));
    table_.resize(table_.size() + 256, kUnknown);
  }
  return place->second;
}

// Puts the first frames of a rule into the set.
void JsonMachine::Enter(uint32_t rule, const std::vector<uint32_t>& parents, Places& places) const {
  if (grammar_->rules[rule].kind == Rule::Kind::kChoice) {
    for (uint32_t choice : grammar_->rules[rule].prefix) Enter(choice, parents, places);
  } else {
    Merge(places[StartFrame(*grammar_, rule)], parents);
  }
}

void JsonMachine::AddReturns(const Node& node, Places& places, bool& at_end) const {
  for (uint32_t parent : node.parents) {
    if (parent == kBottom) {
      at_end = true;
    } else {
      Merge(places[nodes_[parent].frame], nodes_[parent].parents);
    }
  }
}

JsonMachine::Config JsonMachine::Finish(Places places, bool at_end) {
  // Calls begin with frames that call nothing themselves, so one round is enough.
  Places called;
  std::vector<FrameCall> calls;
  for (const auto& [frame, parents] : places) {
    calls.clear();
    CallsOf(*grammar_, frame, calls);
    for (const FrameCall& call : calls) {
      if (call.back) {
        Enter(call.rule, {InternNode({*call.back, parents})}, called);
      } else {
        Enter(call.rule, parents, called);
      }
    }
  }
  for (const auto& [frame, parents] : called) Merge(places[frame], parents);
  if ((places.empty() && !at_end) || places.size() > kMostPlaces) return kDead;
  Set set;
  set.at_end = at_end;
  for (auto& [frame, parents] : places) set.nodes.push_back(InternNode({frame, std::move(parents)}));
  std::sort(set.nodes.begin(), set.nodes.end());
  return InternSet(std::move(set));
}

JsonMachine::Config JsonMachine::Start() {
  Places places;
  places[StartFrame(*grammar_, grammar_->root)] = {kBottom};
  return Finish(std::move(places), false);
}

JsonMachine::Config JsonMachine::Alone(const Frame& frame) {
  return InternSet({{InternNode({frame, {kBottom}})}, false});
}

JsonMachine::Config JsonMachine::Compute(Config config, uint8_t byte) {
  Places places;
  bool at_end = false;
  std::vector<Frame> next;
  for (uint32_t id : configs_[static_cast<size_t>(config)].nodes) {
    const Node& node = nodes_[id];
    next.clear();
    const bool done = StepFrame(*grammar_, node.frame, byte, next);
    for (const Frame& frame : next) Merge(places[frame], node.parents);
    if (done) AddReturns(node, places, at_end);
  }
  const Config result = places.empty() && !at_end ? kDead : Finish(std::move(places), at_end);
  table_[static_cast<size_t>(config) * 256 + byte] = result;
  return result;
}

JsonMachine::Config JsonMachine::Return(uint32_t node) {
  if (const auto found = returns_.find(node); found != returns_.end()) return found->second;
  Places places;
  bool at_end = false;
  AddReturns(nodes_[node], places, at_end);
  const Config config = places.empty() ? kDead : Finish(std::move(places), at_end);
  returns_[node] = config;
  return config;
}

JsonMachine::Config JsonMachine::Shrink(Config keep) {
  JsonMachine fresh(*grammar_);
  std::unordered_map<uint32_t, uint32_t> moved;
  // Parents before children, without recursion: a text can be nested deeper than a stack.
  std::vector<uint32_t> work(nodes(keep).begin(), nodes(keep).end());
  while (!work.empty()) {
    const uint32_t id = work.back();
    if (moved.contains(id)) {
      work.pop_back();
      continue;
    }
    Node copy{nodes_[id].frame, {}};
    bool ready = true;
    for (uint32_t parent : nodes_[id].parents) {
      if (parent == kBottom) {
        copy.parents.push_back(kBottom);
      } else if (const auto found = moved.find(parent); found != moved.end()) {
        copy.parents.push_back(found->second);
      } else {
        work.push_back(parent);
        ready = false;
      }
    }
    if (!ready) continue;
    work.pop_back();
    std::sort(copy.parents.begin(), copy.parents.end());
    moved[id] = fresh.InternNode(std::move(copy));
  }
  Set set;
  set.at_end = AtEnd(keep);
  for (uint32_t id : nodes(keep)) set.nodes.push_back(moved[id]);
  std::sort(set.nodes.begin(), set.nodes.end());
  const Config config = fresh.InternSet(std::move(set));
  *this = std::move(fresh);
  return config;
}

}  // namespace octavo::text
