#include "octavo/text/json_grammar.h"

#include <algorithm>

namespace octavo::text {
namespace {

// Phases of objects and arrays; the other rules use kStart and kInside.
enum Phase : uint16_t {
  kStart,
  kInside,      // a string's characters
  kOpen,        // behind the opening bracket
  kAfterValue,  // behind a value
  kAfterComma,
  kName,    // in a property's name
  kColon,   // behind a name
  kBefore,  // before a value
};

// White space that may follow: one space, or a line's end with its indentation; models that may write more never stop.
constexpr uint16_t kSpaceAny = 255;  // nothing yet
constexpr uint16_t kIndent = 32;

std::optional<Frame> StepSpace(const Frame& frame, uint8_t byte) {
  Frame next = frame;
  if (frame.space == kSpaceAny && byte == ' ') {
    next.space = 0;
  } else if (frame.space == kSpaceAny && byte == '\n' && frame.phase != kBefore) {
    next.space = kIndent;
  } else if (frame.space > 0 && frame.space <= kIndent && (byte == ' ' || byte == '\t')) {
    next.space = static_cast<uint16_t>(frame.space - 1);
  } else {
    return std::nullopt;
  }
  return next;
}

Frame At(const Frame& frame, Phase phase, uint16_t space = kSpaceAny) {
  Frame next = frame;
  next.phase = phase;
  next.space = space;
  return next;
}

void CountDown(Frame& frame) {
  if (frame.need > 0) --frame.need;
  if (frame.left != kNoLimit) --frame.left;
}

bool StepString(const Grammar& grammar, const Frame& frame, uint8_t byte, std::vector<Frame>& out) {
  Frame next = frame;
  if (frame.phase == kStart) {
    next.phase = kInside;
    if (byte == '"') out.push_back(next);
    return false;
  }
  if (frame.state == 0 && byte == '"') return frame.need == 0;
  if (frame.state == 0 && frame.left == 0) return false;
  const int32_t state = grammar.char_dfa.Next(static_cast<int32_t>(frame.state), byte);
  if (state == ByteDfa::kDead) return false;
  next.state = static_cast<uint32_t>(state);
  if (grammar.char_dfa.accepts(state)) {
    next.state = 0;
    CountDown(next);
  }
  out.push_back(next);
  return false;
}

// The properties that may be named next: up to the first that must be.
size_t LastCandidate(const Rule& rule, size_t from) {
  while (from < rule.properties.size() && !rule.properties[from].required) ++from;
  return from;  // a required one, or the end
}

bool MayAddMembers(const Rule& rule, const Frame& frame) {
  return rule.item != kNoRule && frame.left > 0 && LastCandidate(rule, frame.state) == rule.properties.size();
}

bool StepObject(const Rule& rule, const Frame& frame, uint8_t byte, std::vector<Frame>& out) {
  const auto go = [&](const Frame& next) { out.push_back(next); };
  if (frame.phase == kOpen || frame.phase == kAfterValue || frame.phase == kAfterComma || frame.phase == kBefore) {
    if (const std::optional<Frame> spaced = StepSpace(frame, byte)) {
      go(*spaced);
      return false;
    }
  }
  const size_t last = LastCandidate(rule, frame.state);
  switch (frame.phase) {
    case kStart:
      if (byte == '{') go(At(frame, kOpen));
      return false;
    case kOpen:
    case kAfterComma:
      if (byte == '"') {
        for (size_t i = frame.state; i < rule.properties.size() && i <= last; ++i) {
          Frame next = At(frame, kName, 0);
          next.state = static_cast<uint32_t>(i);
          next.offset = 1;
          go(next);
        }
      }
      return byte == '}' && frame.phase == kOpen && last == rule.properties.size() && frame.need == 0;
    case kAfterValue:
      if (byte == ',' && (frame.state < rule.properties.size() || MayAddMembers(rule, frame))) {
        go(At(frame, kAfterComma));
      }
      return byte == '}' && last == rule.properties.size() && frame.need == 0;
    case kName: {
      const std::string& literal = rule.properties[frame.state].literal;
      if (byte != static_cast<uint8_t>(literal[frame.offset])) return false;
      Frame next = frame;
      if (++next.offset == literal.size()) {
        next = At(frame, kColon, 0);
        next.offset = 0;
      }
      go(next);
      return false;
    }
    case kColon:
      if (byte == ':') go(At(frame, kBefore));
      return false;
    default:
      return false;
  }
}

uint32_t ItemRule(const Rule& rule, uint32_t index) {
  return index < rule.prefix.size() ? rule.prefix[index] : rule.item;
}

bool MayAddItem(const Rule& rule, const Frame& frame) {
  return frame.left > 0 && ItemRule(rule, frame.state) != kNoRule;
}

bool StepArray(const Rule& rule, const Frame& frame, uint8_t byte, std::vector<Frame>& out) {
  if (frame.phase == kStart) {
    if (byte == '[') out.push_back(At(frame, kOpen));
    return false;
  }
  if (const std::optional<Frame> spaced = StepSpace(frame, byte)) {
    out.push_back(*spaced);
    return false;
  }
  if (frame.phase == kAfterValue && byte == ',' && MayAddItem(rule, frame)) out.push_back(At(frame, kAfterComma));
  return byte == ']' && frame.phase != kAfterComma && frame.need == 0;
}

}  // namespace

bool StepFrame(const Grammar& grammar, const Frame& frame, uint8_t byte, std::vector<Frame>& out) {
  const Rule& rule = grammar.rules[frame.rule];
  switch (rule.kind) {
    case Rule::Kind::kDfa: {
      const int32_t state = rule.dfa.Next(static_cast<int32_t>(frame.state), byte);
      if (state == ByteDfa::kDead) return false;
      if (!rule.dfa.final(state)) {
        Frame next = frame;
        next.state = static_cast<uint32_t>(state);
        out.push_back(next);
      }
      return rule.dfa.accepts(state);
    }
    case Rule::Kind::kString:
      return StepString(grammar, frame, byte, out);
    case Rule::Kind::kObject:
      return StepObject(rule, frame, byte, out);
    case Rule::Kind::kArray:
      return StepArray(rule, frame, byte, out);
    case Rule::Kind::kDocument:
      if (const std::optional<Frame> spaced = StepSpace(frame, byte)) out.push_back(*spaced);
      return false;
    case Rule::Kind::kNothing:
    case Rule::Kind::kChoice:
      return false;
  }
  return false;
}

void CallsOf(const Grammar& grammar, const Frame& frame, std::vector<FrameCall>& out) {
  const Rule& rule = grammar.rules[frame.rule];
  if (rule.kind == Rule::Kind::kDocument) out.push_back({rule.item, std::nullopt});
  if (rule.kind == Rule::Kind::kArray && (frame.phase == kOpen || frame.phase == kAfterComma) &&
      MayAddItem(rule, frame)) {
    Frame back = At(frame, kAfterValue);
    if (back.state < rule.prefix.size()) ++back.state;
    CountDown(back);
    out.push_back({ItemRule(rule, frame.state), back});
  }
  if (rule.kind != Rule::Kind::kObject) return;
  const bool declared = frame.state < rule.properties.size();
  if (frame.phase == kBefore) {
    Frame back = At(frame, kAfterValue);
    if (declared) ++back.state;
    if (!declared) CountDown(back);
    out.push_back({declared ? rule.properties[frame.state].rule : rule.item, back});
  } else if ((frame.phase == kOpen || frame.phase == kAfterComma) && MayAddMembers(rule, frame)) {
    Frame back = At(frame, kColon, 0);
    back.state = static_cast<uint32_t>(rule.properties.size());
    out.push_back({rule.key, back});
  }
}

Frame StartFrame(const Grammar& grammar, uint32_t rule) {
  Frame frame;
  frame.rule = rule;
  if (grammar.rules[rule].kind == Rule::Kind::kDocument) frame.space = kSpaceAny;
  if (grammar.rules[rule].kind == Rule::Kind::kDfa) return frame;
  frame.need = grammar.rules[rule].need;
  frame.left = grammar.rules[rule].left;
  return frame;
}

}  // namespace octavo::text
