// Tokens into a tree: Jinja's grammar with the loopcontrols and generation extensions, as chat templates use it.
// Statements that reach outside the template (include, import, extends, block) are refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/template_ast.h"
#include "octavo/text/template_lexer.h"

namespace octavo::text::jinja {

class Parser {
 public:
  // `source` must be normalized and outlive the parser.
  explicit Parser(std::string_view source);
  Body Parse();

 private:
  using Ends = std::vector<std::string_view>;

  // Tokens.
  const TokenInfo& Current() const { return tokens_[index_]; }
  const TokenInfo& Peek() const;
  const TokenInfo& Advance();
  bool IsOperator(std::string_view op) const;
  bool IsName(std::string_view name) const;
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  std::string ExpectIdentifier();
  void Expect(Token type);
  Place Here() const { return {Current().line, Current().position}; }
  [[noreturn]] void Fail(const std::string& message, Place place, const std::string& shown = "") const;
  [[noreturn]] void FailExpected(std::string_view expected) const;
  [[noreturn]] void FailUnexpected() const;
  [[noreturn]] void FailNoExpression() const;
  std::string DescribeCurrent() const;
  [[noreturn]] void FailTag(const std::string* name, Place place) const;

  // Statements.
  Body ParseUntil(const Ends& ends);
  Body ParseBody(const Ends& ends, bool drop_end);
  StmtPtr ParseStatement();
  StmtPtr ParseTag(const std::string& name);
  StmtPtr ParseFor();
  StmtPtr ParseIf();
  StmtPtr ParseSet();
  StmtPtr ParseMacro();
  StmtPtr ParseCallBlock();
  StmtPtr ParseGeneration();
  StmtPtr ParseFilterBlock();
  StmtPtr ParseWith();
  StmtPtr ParsePrint();
  void ParseSignature(Function* function);
  ExprPtr ParseTarget(bool with_namespace, std::string_view end);

  // Expressions, loosest first.
  ExprPtr ParseExpression(bool with_condition = true);
  ExprPtr ParseCondition();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary(bool with_namespace = false);
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilters(ExprPtr node);
  ExprPtr ParseFilter(ExprPtr node, bool start_inline);
  ExprPtr ParseTest(ExprPtr node);
  ExprPtr ParseCall(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscribed();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  CallArgs ParseCallArgs();
  struct TupleRules {
    bool simplified = false;  // names and literals only
    bool with_condition = true;
    bool parentheses = false;  // () is an empty tuple
    bool with_namespace = false;
    std::string_view end;  // a name that ends it
  };
  ExprPtr ParseTuple(const TupleRules& rules);
  ExprPtr Make(ExprKind kind, Place place) const;
  ExprPtr MakePair(ExprKind kind, Place place, ExprPtr left, ExprPtr right) const;
  void Add(Expr* node, ExprPtr part) const;
  void Measure(Expr* node, const CallArgs& args) const;

  std::string_view source_;
  std::vector<TokenInfo> tokens_;
  size_t index_ = 0;
  int depth_ = 0;
  std::vector<Ends> end_stack_;
  std::vector<std::string> tag_stack_;
};

}  // namespace octavo::text::jinja
