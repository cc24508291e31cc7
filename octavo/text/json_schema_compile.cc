#include "octavo/text/json_schema_compile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/ecma_regex.h"
#include "octavo/text/json_number.h"
#include "octavo/text/json_schema_words.h"

namespace octavo::text {
namespace {

constexpr size_t kMaxRules = 10'000;
constexpr size_t kMaxStates = 60'000;        // of all automata together
constexpr size_t kMaxAlternatives = 50'000;  // of all choices together
constexpr int64_t kMaxCount = 1'000'000'000;

class Compiler {
 public:
  explicit Compiler(const JsonValue& root) : root_(root) {}

  Grammar Run() {
    const uint32_t first = RuleOf(root_, "");
    while (!queue_.empty()) {
      const Pending next = std::move(queue_.front());
      queue_.pop_front();
      At(next.where, [&] { Build(next.rule, *next.schema, next.where); });
    }
    return Finish(first);
  }

  Grammar RunAnyObject() { return Finish(AnyObject()); }

 private:
  struct Pending {
    uint32_t rule;
    const JsonValue* schema;
    std::string where;
  };

  // Puts the place before the reason.
  template <typename Body>
  static void At(const std::string& where, const Body& body) {
    try {
      body();
    } catch (const SchemaError&) {
      throw;
    } catch (const Error& error) {
      throw SchemaError(where, error.message());
    }
  }

  Grammar Finish(uint32_t first) {
    Flatten();
    Prune();
    if (rules_[first].kind == Rule::Kind::kNothing) throw SchemaError("", "no finite text satisfies it");
    Rule document;
    document.kind = Rule::Kind::kDocument;
    document.item = first;
    grammar_.root = NewRule(std::move(document));
    grammar_.rules = std::move(rules_);
    grammar_.char_dfa = CompileJsonChar();
    static std::atomic<uint64_t> ids{1};
    grammar_.id = ids.fetch_add(1);
    return std::move(grammar_);
  }

  uint32_t NewRule(Rule rule) {
    if (rules_.size() >= kMaxRules) ThrowUsage("more than {} rules", kMaxRules);
    rules_.push_back(std::move(rule));
    return static_cast<uint32_t>(rules_.size()) - 1;
  }

  uint32_t DfaRule(ByteDfa dfa) {
    Rule rule;
    states_ += dfa.size();
    if (states_ > kMaxStates) ThrowUsage("its patterns, numbers and lists need more than {} states", kMaxStates);
    rule.kind = dfa.empty() ? Rule::Kind::kNothing : Rule::Kind::kDfa;
    rule.dfa = std::move(dfa);
    return NewRule(std::move(rule));
  }

  uint32_t Literals(const std::set<std::string>& texts) {
    ByteNfa nfa;
    const int start = nfa.NewState();
    const int end = nfa.NewState();
    for (const std::string& text : texts) nfa.AddEmpty(nfa.AddLiteral(start, text), end);
    return DfaRule(nfa.Determinize(start, end));
  }

  uint32_t Shared(std::string_view name) {
    const auto [place, fresh] = shared_.try_emplace(std::string(name), kNoRule);
    if (!fresh) return place->second;
    uint32_t rule = kNoRule;
    if (name == "null") rule = Literals({"null"});
    if (name == "boolean") rule = Literals({"true", "false"});
    if (name == "number") rule = DfaRule(CompileNumber({}));
    if (name == "integer") rule = DfaRule(CompileInteger({}));
    if (name == "string") {
      Rule text;
      text.kind = Rule::Kind::kString;
      rule = NewRule(std::move(text));
    }
    return shared_[std::string(name)] = rule;
  }

  uint32_t AnyValue() {
    if (const auto found = shared_.find("any"); found != shared_.end()) return found->second;
    Rule choice;
    choice.kind = Rule::Kind::kChoice;
    const uint32_t any = shared_["any"] = NewRule(std::move(choice));
    Rule array;
    array.kind = Rule::Kind::kArray;
    array.item = any;
    std::vector<uint32_t> kinds = {AnyObject(),      NewRule(std::move(array)), Shared("string"),
                                   Shared("number"), Shared("boolean"),         Shared("null")};
    rules_[any].prefix = std::move(kinds);
    return any;
  }

  uint32_t AnyObject() {
    if (const auto found = shared_.find("object"); found != shared_.end()) return found->second;
    Rule object;
    object.kind = Rule::Kind::kObject;
    const uint32_t rule = shared_["object"] = NewRule(std::move(object));
    rules_[rule].key = Shared("string");
    const uint32_t any = AnyValue();
    rules_[rule].item = any;
    return rule;
  }

  // The schema that references lead to.
  const JsonValue& Resolve(const JsonValue& from, std::string& where) {
    const JsonValue* schema = &from;
    std::unordered_set<const JsonValue*> seen;
    while (const JsonValue* ref = Member(*schema, "$ref")) {
      if (!seen.insert(schema).second) throw SchemaError(where, "$ref leads back to itself");
      for (const auto& [name, value] : schema->Object("schema")) {
        if (name != "$ref" && !IsAnnotation(name)) {
          throw SchemaError(where, fmt::format("'{}' beside $ref is not supported", name.substr(0, 60)));
        }
      }
      if (!ref->IsString()) throw SchemaError(where, "$ref is not a string");
      const std::string& target = ref->String("$ref");
      const auto [place, fresh] = targets_.try_emplace(target, nullptr);
      if (fresh) place->second = FindPointer(root_, target);
      if (place->second == nullptr) {
        throw SchemaError(where, fmt::format("$ref '{}' leads nowhere in this schema", target.substr(0, 100)));
      }
      schema = place->second;
      where = target.substr(1);
    }
    return *schema;
  }

  // The rule of a schema; what it is made of is built later, so that schemas may refer to themselves.
  uint32_t RuleOf(const JsonValue& from, std::string where) {
    const JsonValue& schema = Resolve(from, where);
    const auto [place, fresh] = built_.try_emplace(&schema, 0);
    if (!fresh) return place->second;
    const uint32_t rule = NewRule({});
    place->second = rule;
    queue_.push_back({rule, &schema, std::move(where)});
    return rule;
  }

  void BecomeChoice(uint32_t rule, std::vector<uint32_t> choices) {
    rules_[rule].kind = Rule::Kind::kChoice;
    rules_[rule].prefix = std::move(choices);
  }

  void Build(uint32_t rule, const JsonValue& schema, const std::string& where) {
    if (schema.IsBool()) {
      if (schema.Bool(where)) BecomeChoice(rule, {AnyValue()});
      return;
    }
    if (!schema.IsObject()) ThrowUsage("a schema is an object, true or false");
    CheckWords(schema);
    for (std::string_view word : {"allOf", "anyOf", "oneOf"}) {
      if (const JsonValue* list = Member(schema, word)) {
        CheckAlone(schema, word);
        BecomeChoice(rule, Alternatives(*list, word, where));
        return;
      }
    }
    const std::set<std::string> types = TypesOf(schema);
    if (Member(schema, "enum") != nullptr || Member(schema, "const") != nullptr) {
      BecomeChoice(rule, {Literals(LiteralsOf(schema, types))});
      return;
    }
    if (types.empty()) {
      BecomeChoice(rule, {AnyValue()});
      return;
    }
    std::vector<uint32_t> choices;
    for (const std::string& type : types) choices.push_back(TypeRule(type, schema, where));
    BecomeChoice(rule, std::move(choices));
  }

  std::vector<uint32_t> Alternatives(const JsonValue& list, std::string_view word, const std::string& where) {
    if (!list.IsArray() || list.Items(where).empty()) ThrowUsage("{} is not a list of schemas", word);
    const JsonValue::Array& items = list.Items(where);
    if (word == "allOf" && items.size() > 1) ThrowUsage("allOf of more than one schema is not supported");
    if (word == "oneOf") CheckExclusive(items, where);
    std::vector<uint32_t> choices;
    for (size_t i = 0; i < items.size(); ++i)
      choices.push_back(RuleOf(items[i], fmt::format("{}/{}/{}", where, word, i)));
    return choices;
  }

  // oneOf means "exactly one": it can be enforced where no value fits two.
  void CheckExclusive(const JsonValue::Array& items, const std::string& where) {
    if (items.size() > 64) ThrowUsage("oneOf of {} schemas: at most 64 can be compared", items.size());
    std::vector<const JsonValue*> resolved;
    for (const JsonValue& item : items) {
      std::string place = where;
      resolved.push_back(&Resolve(item, place));
    }
    for (size_t i = 0; i < resolved.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!Exclusive(*resolved[i], *resolved[j])) {
          ThrowUsage(
              "oneOf: a value may fit both {} and {}; give each a required property with a const of its own, or "
              "use anyOf",
              j, i);
        }
      }
    }
  }

  bool Exclusive(const JsonValue& a, const JsonValue& b) {
    if (!a.IsObject() || !b.IsObject()) return false;
    const auto literals = [](const JsonValue& schema) {
      const bool fixed = Member(schema, "const") != nullptr || Member(schema, "enum") != nullptr;
      return fixed ? LiteralsOf(schema, TypesOf(schema)) : std::set<std::string>();
    };
    const auto apart = [](const std::set<std::string>& x, const std::set<std::string>& y) {
      return !x.empty() && !y.empty() && std::none_of(x.begin(), x.end(), [&](const auto& t) { return y.contains(t); });
    };
    if (apart(literals(a), literals(b))) return true;
    std::set<std::string> types_a = TypesOf(a);
    std::set<std::string> types_b = TypesOf(b);
    if (types_a.contains("number")) types_a.insert("integer");
    if (types_b.contains("number")) types_b.insert("integer");
    if (apart(types_a, types_b)) return true;
    const JsonValue* properties_a = a.Find("properties");
    const JsonValue* properties_b = b.Find("properties");
    if (properties_a == nullptr || properties_b == nullptr) return false;
    for (const std::string& name : RequiredOf(a)) {
      if (!RequiredOf(b).contains(name)) continue;
      const JsonValue* first = properties_a->Find(name);
      const JsonValue* second = properties_b->Find(name);
      std::string place;
      if (first == nullptr || second == nullptr || !first->IsObject() || !second->IsObject()) continue;
      if (apart(literals(Resolve(*first, place)), literals(Resolve(*second, place)))) return true;
    }
    return false;
  }

  uint32_t TypeRule(const std::string& type, const JsonValue& schema, const std::string& where) {
    if (type == "string") return StringRule(schema, where);
    if (type == "integer" || type == "number") return NumberRule(type, schema, where);
    if (type == "object") return ObjectRule(schema, where);
    if (type == "array") return ArrayRule(schema, where);
    return Shared(type);
  }

  static uint32_t Count(const JsonValue& schema, std::string_view word, uint32_t otherwise) {
    const JsonValue* value = Member(schema, word);
    if (value == nullptr) return otherwise;
    if (value->type() != JsonValue::Type::kInt) ThrowUsage("{} is not an integer", word);
    return static_cast<uint32_t>(value->Int(std::string(word), 0, kMaxCount));
  }

  static void CheckOrder(uint32_t least, uint32_t most, std::string_view what) {
    if (least > most) ThrowUsage("min{} {} is above max{} {}", what, least, what, most);
  }

  uint32_t StringRule(const JsonValue& schema, const std::string& where) {
    const uint32_t need = Count(schema, "minLength", 0);
    const uint32_t left = Count(schema, "maxLength", kNoLimit);
    CheckOrder(need, left, "Length");
    ByteDfa content;
    bool any = true;
    const auto add = [&](std::string_view word, std::string_view pattern) {
      At(fmt::format("{}/{}", where, word), [&] {
        ByteDfa next = CompilePattern(pattern);
        content = any ? std::move(next) : ByteDfa::Product(content, next, ByteDfa::Combine::kBoth);
        any = false;
        if (content.empty()) ThrowUsage("no string satisfies it");
      });
    };
    if (const JsonValue* pattern = Member(schema, "pattern")) {
      if (!pattern->IsString()) ThrowUsage("pattern is not a string");
      add("pattern", pattern->String(where));
    }
    if (const JsonValue* format = Member(schema, "format")) {
      if (!format->IsString()) ThrowUsage("format is not a string");
      At(where + "/format", [&] { add("format", FormatPattern(format->String(where))); });
    }
    if (any && need == 0 && left == kNoLimit) return Shared("string");
    if (any) {
      Rule rule;
      rule.kind = Rule::Kind::kString;
      rule.need = need;
      rule.left = left;
      return NewRule(std::move(rule));
    }
    if (need > 0) add("minLength", fmt::format("^[\\s\\S]{{{},}}", std::min(need, 100'000u)));
    if (left != kNoLimit) add("maxLength", fmt::format("^[\\s\\S]{{0,{}}}$", std::min(left, 100'000u)));
    return DfaRule(ByteDfa::Quoted(content));
  }

  uint32_t NumberRule(const std::string& type, const JsonValue& schema, const std::string& where) {
    NumberBounds bounds;
    for (std::string_view word : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const JsonValue* value = Member(schema, word);
      if (value == nullptr) continue;
      At(fmt::format("{}/{}", where, word), [&] { AddBound(*value, word, bounds); });
    }
    if (const JsonValue* format = Member(schema, "format"); format != nullptr && type == "integer") {
      if (format->IsString() && format->String(where) == "int32") {
        Tighten(MakeBound(-2147483648.0, false), true, bounds);
        Tighten(MakeBound(2147483647.0, false), false, bounds);
      }
    }
    if (!bounds.least && !bounds.most) return Shared(type);
    ByteDfa dfa = type == "integer" ? CompileInteger(bounds) : CompileNumber(bounds);
    if (dfa.empty())
      ThrowUsage("no {} of at most {} digits lies between its bounds", type, type == "integer" ? 18 : 15);
    return DfaRule(std::move(dfa));
  }

  static void AddBound(const JsonValue& value, std::string_view word, NumberBounds& bounds) {
    if (value.type() != JsonValue::Type::kInt && value.type() != JsonValue::Type::kDouble) {
      ThrowUsage("expected a number");
    }
    const bool least = word == "minimum" || word == "exclusiveMinimum";
    const double number = value.Number(word);
    // Nothing that can be written lies beyond 18 digits.
    if (std::fabs(number) >= 1e18 && (number < 0) == least) return;
    const bool exclusive = word.starts_with("exclusive");
    DecimalBound bound = MakeBound(number, exclusive);
    if (value.type() == JsonValue::Type::kInt) {
      const int64_t whole = value.Int(word, INT64_MIN, INT64_MAX);
      bound.whole = std::to_string(whole < 0 ? -whole : whole);
    }
    Tighten(std::move(bound), least, bounds);
  }

  // Both minimum and exclusiveMinimum may be given: the stricter one counts.
  static void Tighten(DecimalBound bound, bool least, NumberBounds& bounds) {
    std::optional<DecimalBound>& place = least ? bounds.least : bounds.most;
    if (!place) {
      place = std::move(bound);
      return;
    }
    const auto value = [](const DecimalBound& b) {
      return std::stod((b.negative ? "-" : "") + b.whole + "." + b.fraction);
    };
    const double old = value(*place);
    const double fresh = value(bound);
    const bool tighter = least ? fresh > old : fresh < old;
    if (tighter || (fresh == old && bound.exclusive)) place = std::move(bound);
  }

  uint32_t ObjectRule(const JsonValue& schema, const std::string& where) {
    Rule rule;
    rule.kind = Rule::Kind::kObject;
    const JsonValue* properties = Member(schema, "properties");
    const JsonValue* additional = Member(schema, "additionalProperties");
    if (properties != nullptr && !properties->IsObject()) ThrowUsage("properties is not an object");
    std::set<std::string> required = RequiredOf(schema);
    const bool declared = properties != nullptr && !properties->Object(where).empty();
    const bool closed = additional == nullptr ? declared : additional->IsBool() && !additional->Bool(where);
    if (!closed) {
      const bool any = additional == nullptr || (additional->IsBool() && additional->Bool(where));
      rule.item = any ? AnyValue() : RuleOf(*additional, where + "/additionalProperties");
    }
    std::set<std::string> names;
    if (declared) {
      for (const auto& [name, value] : properties->Object(where)) {
        const bool must = required.erase(name) > 0;
        names.insert(name);
        rule.properties.push_back({JsonText(name), RuleOf(value, where + "/properties/" + PointerPart(name)), must});
      }
    }
    for (const std::string& name : required) {
      if (additional != nullptr && closed) {
        ThrowUsage("required names '{}', which is no property, and additionalProperties is false", name.substr(0, 60));
      }
      names.insert(name);
      rule.properties.push_back({JsonText(name), closed ? AnyValue() : rule.item, true});
    }
    SetMemberCounts(schema, rule);
    if (rule.item != kNoRule) rule.key = KeyRule(schema, names, where);
    return NewRule(std::move(rule));
  }

  static void SetMemberCounts(const JsonValue& schema, Rule& rule) {
    const uint32_t least = Count(schema, "minProperties", 0);
    const uint32_t most = Count(schema, "maxProperties", kNoLimit);
    CheckOrder(least, most, "Properties");
    if (rule.properties.empty()) {
      // A name that comes twice counts once for whoever reads the object, and no automaton remembers them all.
      if (least > 1) ThrowUsage("minProperties {}: more than 1 cannot be enforced where names are free", least);
      rule.need = least;
      rule.left = most;
      if (least > 0 && rule.item == kNoRule) ThrowUsage("minProperties {} of an object without properties", least);
      return;
    }
    const auto must = static_cast<size_t>(
        std::count_if(rule.properties.begin(), rule.properties.end(), [](const auto& p) { return p.required; }));
    const bool few = least <= must;
    const bool many = most == kNoLimit || (rule.item == kNoRule && most >= rule.properties.size());
    if (!few || !many) ThrowUsage("minProperties and maxProperties beside optional properties are not supported");
  }

  // The names of further members: any but the declared ones.
  uint32_t KeyRule(const JsonValue& schema, const std::set<std::string>& names, const std::string& where) {
    if (const JsonValue* key = Member(schema, "propertyNames")) {
      if (!names.empty()) ThrowUsage("propertyNames beside properties is not supported");
      std::string place = where + "/propertyNames";
      const JsonValue& target = Resolve(*key, place);
      if (!target.IsObject()) ThrowUsage("propertyNames is not a schema of strings");
      const std::set<std::string> types = TypesOf(target);
      if (!types.empty() && types != std::set<std::string>{"string"})
        ThrowUsage("propertyNames wants other than strings");
      if (Member(target, "enum") != nullptr || Member(target, "const") != nullptr) {
        return Literals(LiteralsOf(target, {"string"}));
      }
      uint32_t rule = kNoRule;
      At(place, [&] {
        CheckWords(target);
        for (std::string_view word : {"anyOf", "oneOf", "allOf"}) {
          if (Member(target, word) != nullptr) ThrowUsage("{} in propertyNames is not supported", word);
        }
        rule = StringRule(target, place);
      });
      return rule;
    }
    if (names.empty()) return Shared("string");
    ByteNfa nfa;
    const int start = nfa.NewState();
    const int end = nfa.NewState();
    for (const std::string& name : names) nfa.AddEmpty(nfa.AddLiteral(start, name), end);
    return DfaRule(ByteDfa::Quoted(
        ByteDfa::Product(CompilePlainChars(), nfa.Determinize(start, end), ByteDfa::Combine::kFirstOnly)));
  }

  uint32_t ArrayRule(const JsonValue& schema, const std::string& where) {
    Rule rule;
    rule.kind = Rule::Kind::kArray;
    rule.need = Count(schema, "minItems", 0);
    rule.left = Count(schema, "maxItems", kNoLimit);
    CheckOrder(rule.need, rule.left, "Items");
    const JsonValue* items = Member(schema, "items");
    const JsonValue* prefix = Member(schema, "prefixItems");
    const JsonValue* rest = items;
    std::string_view prefix_word = "prefixItems";
    std::string_view rest_word = "items";
    if (items != nullptr && items->IsArray()) {  // the older spelling of tuples
      if (prefix != nullptr) ThrowUsage("items is a list beside prefixItems");
      prefix = items;
      prefix_word = "items";
      rest = Member(schema, rest_word = "additionalItems");
    }
    if (prefix != nullptr) {
      if (!prefix->IsArray()) ThrowUsage("{} is not a list", prefix_word);
      size_t index = 0;
      for (const JsonValue& item : prefix->Items(where)) {
        rule.prefix.push_back(RuleOf(item, fmt::format("{}/{}/{}", where, prefix_word, index++)));
      }
    }
    const bool closed = rest != nullptr && rest->IsBool() && !rest->Bool(where);
    if (rest == nullptr && (rule.prefix.empty() || rule.need > rule.prefix.size())) rule.item = AnyValue();
    if (rest != nullptr && !closed) rule.item = RuleOf(*rest, fmt::format("{}/{}", where, rest_word));
    if (rule.item == kNoRule && rule.need > rule.prefix.size()) {
      ThrowUsage("minItems {} of an array that has at most {}", rule.need, rule.prefix.size());
    }
    return NewRule(std::move(rule));
  }

  // Choices of choices become one: the machine enters them without reading, so they may not go round in circles.
  void Flatten() {
    size_t total = 0;
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      if (rules_[rule].kind != Rule::Kind::kChoice) continue;
      std::vector<uint32_t> flat;
      std::vector<bool> seen(rules_.size());
      std::vector<uint32_t> work(rules_[rule].prefix.rbegin(), rules_[rule].prefix.rend());
      while (!work.empty()) {
        const uint32_t next = work.back();
        work.pop_back();
        if (seen[next]) continue;
        seen[next] = true;
        if (next == rule) throw SchemaError("", "an alternative leads back to itself with nothing between");
        if (++total > kMaxAlternatives)
          throw SchemaError("", fmt::format("more than {} alternatives", kMaxAlternatives));
        if (rules_[next].kind == Rule::Kind::kChoice && !flattened_.contains(next)) {
          work.insert(work.end(), rules_[next].prefix.rbegin(), rules_[next].prefix.rend());
        } else if (rules_[next].kind == Rule::Kind::kChoice) {
          for (uint32_t leaf : rules_[next].prefix) {
            if (!seen[leaf]) flat.push_back(leaf);
            seen[leaf] = true;
          }
        } else {
          flat.push_back(next);
        }
      }
      rules_[rule].prefix = std::move(flat);
      flattened_.insert(rule);
    }
  }

  bool Lives(uint32_t rule) const { return rule != kNoRule && live_[rule]; }

  bool Productive(const Rule& rule) const {
    switch (rule.kind) {
      case Rule::Kind::kNothing:
        return false;
      case Rule::Kind::kDfa:
      case Rule::Kind::kString:
        return true;
      case Rule::Kind::kChoice:
        return std::any_of(rule.prefix.begin(), rule.prefix.end(), [&](uint32_t r) { return Lives(r); });
      case Rule::Kind::kObject:
        for (const Rule::Property& property : rule.properties) {
          if (property.required && !Lives(property.rule)) return false;
        }
        return rule.need == 0 || (Lives(rule.item) && Lives(rule.key));
      case Rule::Kind::kArray:
        for (size_t i = 0; i < rule.need && i < rule.prefix.size(); ++i) {
          if (!Lives(rule.prefix[i])) return false;
        }
        return rule.need <= rule.prefix.size() || Lives(rule.item);
      case Rule::Kind::kDocument:
        return Lives(rule.item);
    }
    return false;
  }

  // Takes out what no finite text can satisfy, so that the machine never enters a blind alley.
  void Prune() {
    live_.assign(rules_.size(), false);
    // Who becomes live may make those live that use it.
    std::vector<std::vector<uint32_t>> users(rules_.size());
    std::vector<uint32_t> work;
    for (uint32_t id = 0; id < rules_.size(); ++id) {
      const Rule& rule = rules_[id];
      const auto uses = [&](uint32_t used) {
        if (used != kNoRule) users[used].push_back(id);
      };
      for (const Rule::Property& property : rule.properties) uses(property.rule);
      for (uint32_t used : rule.prefix) uses(used);
      uses(rule.item);
      uses(rule.key);
      work.push_back(id);
    }
    while (!work.empty()) {
      const uint32_t id = work.back();
      work.pop_back();
      if (live_[id] || !Productive(rules_[id])) continue;
      live_[id] = true;
      work.insert(work.end(), users[id].begin(), users[id].end());
    }
    for (uint32_t id = 0; id < rules_.size(); ++id) {
      Rule& rule = rules_[id];
      if (!live_[id]) {
        rule = Rule();
        continue;
      }
      std::erase_if(rule.properties, [&](const Rule::Property& p) { return !Lives(p.rule); });
      if (rule.kind == Rule::Kind::kChoice) std::erase_if(rule.prefix, [&](uint32_t r) { return !Lives(r); });
      if (rule.item != kNoRule && !Lives(rule.item)) rule.item = kNoRule;
      if (rule.key != kNoRule && !Lives(rule.key)) rule.item = kNoRule;
      if (rule.kind == Rule::Kind::kArray) {
        const auto dead = std::find_if(rule.prefix.begin(), rule.prefix.end(), [&](uint32_t r) { return !Lives(r); });
        if (dead != rule.prefix.end()) {
          rule.prefix.erase(dead, rule.prefix.end());
          rule.item = kNoRule;
        }
      }
    }
  }

  const JsonValue& root_;
  Grammar grammar_;
  std::vector<Rule> rules_;
  std::deque<Pending> queue_;
  std::unordered_map<const JsonValue*, uint32_t> built_;
  std::unordered_map<std::string, const JsonValue*> targets_;
  std::unordered_map<std::string, uint32_t> shared_;
  std::unordered_set<uint32_t> flattened_;
  std::vector<bool> live_;
  size_t states_ = 0;
};

}  // namespace

Grammar CompileSchema(const JsonValue& schema) { return Compiler(schema).Run(); }

Grammar AnyObjectGrammar() {
  const JsonValue any(true);
  return Compiler(any).RunAnyObject();
}

}  // namespace octavo::text
