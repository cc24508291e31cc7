#include "octavo/text/template_parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/text/template_error.h"
#include "octavo/text/template_nesting.h"

namespace octavo::text::jinja {
namespace {

std::string Describe(const TokenInfo& token) {
  switch (token.type) {
    case Token::kEnd:
      return "end of template";
    case Token::kData:
      return "template data / text";
    case Token::kVariableBegin:
      return "begin of print statement";
    case Token::kVariableEnd:
      return "end of print statement";
    case Token::kBlockBegin:
      return "begin of statement block";
    case Token::kBlockEnd:
      return "end of statement block";
    case Token::kString:
      return "string";
    case Token::kInteger:
      return "integer";
    case Token::kFloat:
      return "float";
    case Token::kName:
    case Token::kOperator:
      break;
  }
  return token.text;
}

std::unique_ptr<Stmt> MakeStmt(StmtKind kind, Place place) {
  auto node = std::make_unique<Stmt>();
  node->kind = kind;
  node->place = place;
  return node;
}

bool Contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Parser::Parser(std::string_view source) : source_(source), tokens_(Tokenize(source)) {}

const TokenInfo& Parser::Peek() const { return tokens_[std::min(index_ + 1, tokens_.size() - 1)]; }

const TokenInfo& Parser::Advance() {
  const TokenInfo& token = tokens_[index_];
  if (index_ + 1 < tokens_.size()) ++index_;
  return token;
}

bool Parser::IsOperator(std::string_view op) const {
  return Current().type == Token::kOperator && Current().text == op;
}
bool Parser::IsName(std::string_view name) const { return Current().type == Token::kName && Current().text == name; }

bool Parser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}

bool Parser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Advance();
  return true;
}

void Parser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailExpected(op);
}

void Parser::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailExpected(name);
}

std::string Parser::ExpectIdentifier() {
  if (Current().type != Token::kName) FailExpected("name");
  return Advance().text;
}

void Parser::Expect(Token type) {
  if (Current().type != type) {
    TokenInfo expected;
    expected.type = type;
    FailExpected(Describe(expected));
  }
  Advance();
}

void Parser::Fail(const std::string& message, Place place, const std::string& shown) const {
  throw TemplateError(ErrorCode::kFile, "TemplateSyntaxError", message, place.line, shown,
                      Excerpt(source_, place.position));
}

void Parser::FailExpected(std::string_view expected) const {
  if (Current().type == Token::kEnd) Fail(fmt::format("unexpected end of template, expected '{}'.", expected), Here());
  Fail(fmt::format("expected token '{}', got '{}'", expected, Describe(Current())), Here());
}

std::string Parser::DescribeCurrent() const { return Describe(Current()); }

// A tag that nothing here knows, or the end of the template (no name) inside a block.
void Parser::FailTag(const std::string* name, Place place) const {
  std::string message =
      name == nullptr ? "Unexpected end of template." : fmt::format("Encountered unknown tag '{}'.", *name);
  if (!end_stack_.empty()) {
    std::vector<std::string> wanted;
    for (const std::string_view end : end_stack_.back()) wanted.push_back(fmt::format("'{}'", end));
    const std::string looking = fmt::format("{}", fmt::join(wanted, " or "));
    const bool elsewhere = name != nullptr && std::any_of(end_stack_.begin(), end_stack_.end(),
                                                          [&](const Ends& ends) { return Contains(ends, *name); });
    message += elsewhere
                   ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
                         looking + "."
                   : " Jinja was looking for the following tags: " + looking + ".";
  }
  if (!tag_stack_.empty())
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", tag_stack_.back());
  Fail(message, place);
}

Body Parser::Parse() { return ParseUntil({}); }

Body Parser::ParseUntil(const Ends& ends) {
  Body body;
  StmtPtr output;
  const auto output_at = [&](Place place) -> Stmt& {
    if (!output) output = MakeStmt(StmtKind::kOutput, place);
    return *output;
  };
  const auto flush = [&] {
    if (output) body.push_back(std::move(output));
  };
  if (!ends.empty()) end_stack_.push_back(ends);
  while (Current().type != Token::kEnd) {
    const Place place = Here();
    if (Current().type == Token::kData) {
      output_at(place).output.emplace_back(Text(Advance().text), nullptr);
    } else if (Current().type == Token::kVariableBegin) {
      Advance();
      ExprPtr value = ParseTuple({});
      Expect(Token::kVariableEnd);
      output_at(place).output.emplace_back(Text(), std::move(value));
    } else {
      flush();
      Expect(Token::kBlockBegin);
      if (Current().type == Token::kName && Contains(ends, Current().text)) {
        end_stack_.pop_back();
        return body;
      }
      body.push_back(ParseStatement());
      Expect(Token::kBlockEnd);
    }
  }
  flush();
  if (!ends.empty()) {
    const Place place = Here();
    FailTag(nullptr, place);
  }
  return body;
}

Body Parser::ParseBody(const Ends& ends, bool drop_end) {
  SkipOperator(":");  // as Python writes it
  Expect(Token::kBlockEnd);
  Body body = ParseUntil(ends);
  if (drop_end) Advance();
  return body;
}

StmtPtr Parser::ParseStatement() {
  const Nesting nesting(&depth_, Here().line, source_, Here().position);
  if (Current().type != Token::kName) Fail("tag name expected", Here());
  const std::string name = Current().text;
  tag_stack_.push_back(name);
  StmtPtr statement = ParseTag(name);
  tag_stack_.pop_back();
  return statement;
}

StmtPtr Parser::ParseTag(const std::string& name) {
  const Place place = Here();
  if (name == "for") return ParseFor();
  if (name == "if") return ParseIf();
  if (name == "set") return ParseSet();
  if (name == "macro") return ParseMacro();
  if (name == "call") return ParseCallBlock();
  if (name == "generation") return ParseGeneration();
  if (name == "filter") return ParseFilterBlock();
  if (name == "with") return ParseWith();
  if (name == "print") return ParsePrint();
  if (name == "break" || name == "continue") {
    Advance();
    return MakeStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, place);
  }
  static constexpr std::array<std::string_view, 6> kOutside = {"block",  "extends", "include",
                                                               "import", "from",    "autoescape"};
  if (std::find(kOutside.begin(), kOutside.end(), name) != kOutside.end())
    Fail(fmt::format("statement '{}' is not supported", name), place);
  tag_stack_.pop_back();
  FailTag(&name, place);
}

StmtPtr Parser::ParseFor() {
  StmtPtr node = MakeStmt(StmtKind::kFor, Here());
  ExpectName("for");
  node->target = ParseTarget(false, "in");
  ExpectName("in");
  TupleRules rules;
  rules.with_condition = false;
  rules.end = "recursive";
  node->value = ParseTuple(rules);
  if (SkipName("if")) node->test = ParseExpression();
  node->recursive = SkipName("recursive");
  node->body = ParseBody({"endfor", "else"}, false);
  if (Advance().text == "else") node->else_body = ParseBody({"endfor"}, true);
  return node;
}

StmtPtr Parser::ParseIf() {
  StmtPtr node = MakeStmt(StmtKind::kIf, Here());
  ExpectName("if");
  TupleRules rules;
  rules.with_condition = false;
  Place place = node->place;
  while (true) {
    Branch branch;
    branch.place = place;
    branch.test = ParseTuple(rules);
    branch.body = ParseBody({"elif", "else", "endif"}, false);
    node->branches.push_back(std::move(branch));
    const std::string end = Advance().text;
    place = Here();
    if (end == "elif") continue;
    if (end == "else") {
      Branch last;
      last.place = place;
      last.body = ParseBody({"endif"}, true);
      node->branches.push_back(std::move(last));
    }
    return node;
  }
}

StmtPtr Parser::ParseSet() {
  StmtPtr node = MakeStmt(StmtKind::kAssign, Here());
  Advance();
  node->target = ParseTarget(true, "");
  if (SkipOperator("=")) {
    node->value = ParseTuple({});
    return node;
  }
  node->kind = StmtKind::kAssignBlock;
  node->value = ParseFilter(nullptr, false);
  node->body = ParseBody({"endset"}, true);
  return node;
}

void Parser::ParseSignature(Function* function) {
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!function->parameters.empty()) ExpectOperator(",");
    const Place place = Here();
    const std::string name = ExpectIdentifier();
    if (Contains({"true", "false", "none", "True", "False", "None"}, name)) Fail("can't assign to 'name'", place);
    if (SkipOperator("="))
      function->defaults.push_back(ParseExpression());
    else if (!function->defaults.empty())
      Fail("non-default argument follows default argument", Here());
    if (Contains({function->parameters.begin(), function->parameters.end()}, name))
      Fail(fmt::format("duplicate argument '{}' in function definition", name), place);
    function->parameters.push_back(name);
  }
  ExpectOperator(")");
}

StmtPtr Parser::ParseMacro() {
  StmtPtr node = MakeStmt(StmtKind::kMacro, Here());
  Advance();
  node->function = std::make_unique<Function>();
  node->function->name = ExpectIdentifier();
  ParseSignature(node->function.get());
  node->body = ParseBody({"endmacro"}, true);
  return node;
}

StmtPtr Parser::ParseCallBlock() {
  StmtPtr node = MakeStmt(StmtKind::kCallBlock, Here());
  Advance();
  node->function = std::make_unique<Function>();
  node->function->anonymous = true;
  if (IsOperator("(")) ParseSignature(node->function.get());
  node->value = ParseExpression();
  if (node->value->kind != ExprKind::kCall) Fail("expected call", node->place);
  node->body = ParseBody({"endcall"}, true);
  return node;
}

StmtPtr Parser::ParseGeneration() {
  StmtPtr node = MakeStmt(StmtKind::kGeneration, Here());
  Advance();
  node->function = std::make_unique<Function>();
  node->function->anonymous = true;
  node->body = ParseBody({"endgeneration"}, true);
  return node;
}

StmtPtr Parser::ParseFilterBlock() {
  StmtPtr node = MakeStmt(StmtKind::kFilterBlock, Here());
  Advance();
  node->value = ParseFilter(nullptr, true);
  node->body = ParseBody({"endfilter"}, true);
  return node;
}

StmtPtr Parser::ParseWith() {
  StmtPtr node = MakeStmt(StmtKind::kWith, Here());
  Advance();
  while (Current().type != Token::kBlockEnd) {
    if (!node->assignments.empty()) ExpectOperator(",");
    ExprPtr target = ParseTarget(false, "");
    ExpectOperator("=");
    ExprPtr value = ParseExpression();
    node->assignments.emplace_back(std::move(target), std::move(value));
  }
  node->body = ParseBody({"endwith"}, true);
  return node;
}

StmtPtr Parser::ParsePrint() {
  StmtPtr node = MakeStmt(StmtKind::kOutput, Here());
  Advance();
  while (Current().type != Token::kBlockEnd) {
    if (!node->output.empty()) ExpectOperator(",");
    node->output.emplace_back(Text(), ParseExpression());
  }
  return node;
}

ExprPtr Parser::ParseTarget(bool with_namespace, std::string_view end) {
  TupleRules rules;
  rules.simplified = true;
  rules.with_namespace = with_namespace;
  rules.end = end;
  ExprPtr target = ParseTuple(rules);
  const auto check = [&](const auto& self, const Expr& node) -> void {
    if (node.kind == ExprKind::kTuple) {
      for (const ExprPtr& part : node.parts) self(self, *part);
    } else if (node.kind != ExprKind::kName && node.kind != ExprKind::kAttributeTarget) {
      const char* what = node.kind == ExprKind::kConst  ? "const"
                         : node.kind == ExprKind::kList ? "list"
                         : node.kind == ExprKind::kDict ? "dict"
                                                        : "expression";
      Fail(fmt::format("can't assign to '{}'", target->kind == ExprKind::kTuple ? "tuple" : what), target->place);
    }
  };
  check(check, *target);
  return target;
}

}  // namespace octavo::text::jinja
