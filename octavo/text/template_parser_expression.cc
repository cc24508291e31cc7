// The expression half of the parser.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/text/template_error.h"
#include "octavo/text/template_nesting.h"
#include "octavo/text/template_parser.h"

namespace octavo::text::jinja {

ExprPtr Parser::Make(ExprKind kind, Place place) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->place = place;
  return node;
}

void Parser::Add(Expr* node, ExprPtr part) const {
  if (part) {
    node->depth = std::max(node->depth, part->depth + 1);
    if (node->depth > kMaxExpressionDepth) {
      throw TemplateError(ErrorCode::kFile, "LimitError",
                          fmt::format("an expression nests deeper than {} operations", kMaxExpressionDepth),
                          node->place.line, "", Excerpt(source_, node->place.position));
    }
  }
  node->parts.push_back(std::move(part));
}

void Parser::Measure(Expr* node, const CallArgs& args) const {
  const auto count = [node](const ExprPtr& part) {
    if (part) node->depth = std::max(node->depth, part->depth + 1);
  };
  for (const ExprPtr& part : args.positional) count(part);
  for (const auto& [name, part] : args.named) count(part);
  count(args.star);
  count(args.star_star);
}

ExprPtr Parser::MakePair(ExprKind kind, Place place, ExprPtr left, ExprPtr right) const {
  ExprPtr node = Make(kind, place);
  Add(node.get(), std::move(left));
  Add(node.get(), std::move(right));
  return node;
}

ExprPtr Parser::ParseExpression(bool with_condition) { return with_condition ? ParseCondition() : ParseOr(); }

ExprPtr Parser::ParseCondition() {
  const Nesting nesting(&depth_, Here().line, source_, Here().position);
  Place place = Here();
  ExprPtr value = ParseOr();
  while (SkipName("if")) {
    ExprPtr test = ParseOr();
    ExprPtr otherwise = SkipName("else") ? ParseCondition() : nullptr;
    ExprPtr node = Make(ExprKind::kCond, place);
    Add(node.get(), std::move(test));
    Add(node.get(), std::move(value));
    Add(node.get(), std::move(otherwise));
    value = std::move(node);
    place = Here();
  }
  return value;
}

ExprPtr Parser::ParseOr() {
  Place place = Here();
  ExprPtr left = ParseAnd();
  while (SkipName("or")) {
    left = MakePair(ExprKind::kOr, place, std::move(left), ParseAnd());
    place = Here();
  }
  return left;
}

ExprPtr Parser::ParseAnd() {
  Place place = Here();
  ExprPtr left = ParseNot();
  while (SkipName("and")) {
    left = MakePair(ExprKind::kAnd, place, std::move(left), ParseNot());
    place = Here();
  }
  return left;
}

ExprPtr Parser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(&depth_, Here().line, source_, Here().position);
  ExprPtr node = Make(ExprKind::kNot, Here());
  Advance();
  Add(node.get(), ParseNot());
  return node;
}

ExprPtr Parser::ParseCompare() {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOps = {{{"==", CompareOp::kEq},
                                                                                  {"!=", CompareOp::kNe},
                                                                                  {"<", CompareOp::kLt},
                                                                                  {"<=", CompareOp::kLe},
                                                                                  {">", CompareOp::kGt},
                                                                                  {">=", CompareOp::kGe}}};
  const Place place = Here();
  ExprPtr first = ParseSum();
  ExprPtr node;
  while (true) {
    CompareOp op;
    if (IsName("in")) {
      op = CompareOp::kIn;
    } else if (IsName("not") && Peek().type == Token::kName && Peek().text == "in") {
      Advance();
      op = CompareOp::kNotIn;
    } else {
      const auto found =
          std::find_if(kOps.begin(), kOps.end(), [this](const auto& entry) { return IsOperator(entry.first); });
      if (found == kOps.end()) break;
      op = found->second;
    }
    Advance();
    if (!node) {
      node = Make(ExprKind::kCompare, place);
      Add(node.get(), std::move(first));
    }
    node->compare.push_back(op);
    Add(node.get(), ParseSum());
  }
  return node ? std::move(node) : std::move(first);
}

ExprPtr Parser::ParseSum() {
  Place place = Here();
  ExprPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const BinaryOp op = Advance().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    left = MakePair(ExprKind::kBinary, place, std::move(left), ParseConcat());
    left->binary = op;
    place = Here();
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  const Place place = Here();
  ExprPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat, place);
  Add(node.get(), std::move(first));
  while (SkipOperator("~")) Add(node.get(), ParseProduct());
  return node;
}

ExprPtr Parser::ParseProduct() {
  static constexpr std::array<std::pair<std::string_view, BinaryOp>, 4> kOps = {
      {{"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}}};
  Place place = Here();
  ExprPtr left = ParsePower();
  while (true) {
    const auto found =
        std::find_if(kOps.begin(), kOps.end(), [this](const auto& entry) { return IsOperator(entry.first); });
    if (found == kOps.end()) return left;
    Advance();
    left = MakePair(ExprKind::kBinary, place, std::move(left), ParsePower());
    left->binary = found->second;
    place = Here();
  }
}

ExprPtr Parser::ParsePower() {
  Place place = Here();
  ExprPtr left = ParseUnary();
  while (SkipOperator("**")) {
    left = MakePair(ExprKind::kBinary, place, std::move(left), ParseUnary());
    left->binary = BinaryOp::kPow;
    place = Here();
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  const Place place = Here();
  ExprPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const Nesting nesting(&depth_, place.line, source_, place.position);
    node = Make(Advance().text == "-" ? ExprKind::kNegate : ExprKind::kPlus, place);
    Add(node.get(), ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilters(std::move(node)) : std::move(node);
}

ExprPtr Parser::ParsePrimary(bool with_namespace) {
  const Place place = Here();
  const auto constant = [&](Value value) {
    ExprPtr node = Make(ExprKind::kConst, place);
    node->constant = std::move(value);
    return node;
  };
  const TokenInfo& token = Current();
  switch (token.type) {
    case Token::kName: {
      Advance();
      if (token.text == "true" || token.text == "True") return constant(Value::Bool(true));
      if (token.text == "false" || token.text == "False") return constant(Value::Bool(false));
      if (token.text == "none" || token.text == "None") return constant(Value::None());
      if (with_namespace && SkipOperator(".")) {
        ExprPtr node = Make(ExprKind::kAttributeTarget, place);
        node->object_name = token.text;
        node->name = ExpectIdentifier();
        return node;
      }
      ExprPtr node = Make(ExprKind::kName, place);
      node->name = token.text;
      return node;
    }
    case Token::kString: {
      std::string text;
      while (Current().type == Token::kString) text += Advance().text;
      return constant(Value::String(std::string_view(text)));
    }
    case Token::kInteger:
      return constant(Value::Int(Advance().integer));
    case Token::kFloat:
      return constant(Value::Float(Advance().real));
    default:
      break;
  }
  if (SkipOperator("(")) {
    TupleRules rules;
    rules.parentheses = true;
    ExprPtr node = ParseTuple(rules);
    ExpectOperator(")");
    return node;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  FailUnexpected();
}

ExprPtr Parser::ParseTuple(const TupleRules& rules) {
  Place place = Here();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return Current().type == Token::kVariableEnd || Current().type == Token::kBlockEnd || IsOperator(")") ||
           (!rules.end.empty() && IsName(rules.end));
  };
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (at_end()) break;
    items.push_back(rules.simplified ? ParsePrimary(rules.with_namespace) : ParseExpression(rules.with_condition));
    if (!IsOperator(",")) break;
    is_tuple = true;
    place = Here();
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parentheses) FailNoExpression();
  }
  ExprPtr node = Make(ExprKind::kTuple, place);
  for (ExprPtr& item : items) Add(node.get(), std::move(item));
  return node;
}

ExprPtr Parser::ParseList() {
  ExprPtr node = Make(ExprKind::kList, Here());
  ExpectOperator("[");
  while (!IsOperator("]")) {
    if (!node->parts.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    Add(node.get(), ParseExpression());
  }
  ExpectOperator("]");
  return node;
}

// Parts are key, value, key, value ...
ExprPtr Parser::ParseDict() {
  ExprPtr node = Make(ExprKind::kDict, Here());
  ExpectOperator("{");
  while (!IsOperator("}")) {
    if (!node->parts.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    Add(node.get(), ParseExpression());
    ExpectOperator(":");
    Add(node.get(), ParseExpression());
  }
  ExpectOperator("}");
  return node;
}

ExprPtr Parser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseFilters(ExprPtr node) {
  while (true) {
    if (IsOperator("|")) {
      node = ParseFilter(std::move(node), false);
    } else if (IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseCall(ExprPtr node) {
  ExprPtr call = Make(ExprKind::kCall, Here());
  Add(call.get(), std::move(node));
  call->args = ParseCallArgs();
  Measure(call.get(), *call->args);
  return call;
}

ExprPtr Parser::ParseSubscript(ExprPtr node) {
  const Place place = Here();
  if (SkipOperator(".")) {
    if (Current().type == Token::kName) {
      ExprPtr result = Make(ExprKind::kAttribute, place);
      result->name = Advance().text;
      Add(result.get(), std::move(node));
      return result;
    }
    if (Current().type != Token::kInteger) Fail("expected name or number", Here());
    ExprPtr index = Make(ExprKind::kConst, Here());
    index->constant = Value::Int(Advance().integer);
    return MakePair(ExprKind::kItem, place, std::move(node), std::move(index));
  }
  ExpectOperator("[");
  std::vector<ExprPtr> items;
  while (!IsOperator("]")) {
    if (!items.empty()) ExpectOperator(",");
    items.push_back(ParseSubscribed());
  }
  ExpectOperator("]");
  if (items.size() == 1) return MakePair(ExprKind::kItem, place, std::move(node), std::move(items[0]));
  ExprPtr tuple = Make(ExprKind::kTuple, place);
  for (ExprPtr& item : items) {
    if (item->kind == ExprKind::kSlice) Fail("a slice in a tuple of subscripts is not supported", item->place);
    Add(tuple.get(), std::move(item));
  }
  return MakePair(ExprKind::kItem, place, std::move(node), std::move(tuple));
}

ExprPtr Parser::ParseSubscribed() {
  const Place place = Here();
  ExprPtr start;
  if (!SkipOperator(":")) {
    start = ParseExpression();
    if (!SkipOperator(":")) return start;
  }
  ExprPtr slice = Make(ExprKind::kSlice, place);
  const auto at_end = [this] { return IsOperator("]") || IsOperator(","); };
  Add(slice.get(), std::move(start));
  Add(slice.get(), IsOperator(":") || at_end() ? nullptr : ParseExpression());
  ExprPtr step;
  if (SkipOperator(":") && !at_end()) step = ParseExpression();
  Add(slice.get(), std::move(step));
  return slice;
}

CallArgs Parser::ParseCallArgs() {
  const Place place = Here();
  CallArgs args;
  const auto ensure = [&](bool condition) {
    if (!condition) Fail("invalid syntax for function call expression", place);
  };
  ExpectOperator("(");
  bool require_comma = false;
  while (!IsOperator(")")) {
    if (require_comma) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    require_comma = true;
    if (SkipOperator("*")) {
      ensure(!args.star && !args.star_star);
      args.star = ParseExpression();
    } else if (SkipOperator("**")) {
      ensure(!args.star_star);
      args.star_star = ParseExpression();
    } else if (Current().type == Token::kName && Peek().type == Token::kOperator && Peek().text == "=") {
      ensure(!args.star_star);
      const std::string name = Advance().text;
      Advance();
      for (const auto& [other, value] : args.named)
        if (other == name) Fail(fmt::format("keyword argument repeated: {}", name), place);
      args.named.emplace_back(name, ParseExpression());
    } else {
      ensure(!args.star && !args.star_star && args.named.empty());
      args.positional.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
  return args;
}

ExprPtr Parser::ParseFilter(ExprPtr node, bool start_inline) {
  while (IsOperator("|") || start_inline) {
    if (!start_inline) Advance();
    start_inline = false;
    ExprPtr filter = Make(ExprKind::kFilter, Here());
    filter->name = ExpectIdentifier();
    while (SkipOperator(".")) filter->name.append(1, '.').append(ExpectIdentifier());
    filter->args.emplace();
    if (IsOperator("(")) filter->args = ParseCallArgs();
    Add(filter.get(), std::move(node));
    Measure(filter.get(), *filter->args);
    node = std::move(filter);
  }
  return node;
}

ExprPtr Parser::ParseTest(ExprPtr node) {
  const Place place = Here();
  Advance();
  const bool negated = SkipName("not");
  ExprPtr test = Make(ExprKind::kTest, place);
  test->name = ExpectIdentifier();
  while (SkipOperator(".")) test->name.append(1, '.').append(ExpectIdentifier());
  Add(test.get(), std::move(node));
  test->args.emplace();
  const bool operand = Current().type == Token::kName || Current().type == Token::kString ||
                       Current().type == Token::kInteger || Current().type == Token::kFloat || IsOperator("[") ||
                       IsOperator("{");
  if (IsOperator("(")) {
    test->args = ParseCallArgs();
  } else if (operand && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Fail("You cannot chain multiple tests with is", Here());
    test->args->positional.push_back(ParsePostfix(ParsePrimary()));
  }
  Measure(test.get(), *test->args);
  if (!negated) return test;
  ExprPtr inverse = Make(ExprKind::kNot, place);
  Add(inverse.get(), std::move(test));
  return inverse;
}

void Parser::FailUnexpected() const { Fail(fmt::format("unexpected '{}'", DescribeCurrent()), Here()); }

void Parser::FailNoExpression() const {
  Fail(fmt::format("Expected an expression, got '{}'", DescribeCurrent()), Here());
}

}  // namespace octavo::text::jinja
