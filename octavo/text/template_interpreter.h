// Runs a parsed template over values. One interpreter is one rendering; it owns all state, so any number can run on
// threads of their own over one program. Filters, tests, methods and operators are free functions that get it as their
// first argument for its services: errors with a place, the budget, calls, iteration.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/text/template_ast.h"
#include "octavo/text/template_nesting.h"
#include "octavo/text/template_options.h"
#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Slots of one call of a function of the template.
struct Activation {
  std::vector<Value> slots;
  std::shared_ptr<Activation> parent;  // where the function was defined
};

struct MacroObject : Object {
  const Function* function = nullptr;
  const Body* body = nullptr;
  std::shared_ptr<Activation> closure;
};

using NativeFunction = Value (*)(Interpreter&, const Value& self, Arguments&);

// A built-in function, or a method bound to `self`.
struct FunctionObject : Object {
  std::string_view name;
  NativeFunction call = nullptr;
  Value self;
};

class IteratorObject : public Object {
 public:
  virtual bool Next(Interpreter& interpreter, Value* item) = 0;
};
using IteratorPtr = std::shared_ptr<IteratorObject>;

// Jinja's LoopContext: the `loop` variable. Looks one item ahead only when asked.
struct LoopObject : Object {
  Value iterable;
  IteratorPtr iterator;
  int64_t index0 = -1;
  int64_t known_length = -1;
  Value before, current, after;  // kMissing: none
  Value last_changed;
  int depth0 = 0;
  const Stmt* recursive = nullptr;  // the statement to run again when the loop is called
  std::shared_ptr<Activation> closure;
};

// Names and values a rendering starts with.
using Variables = std::map<std::string, Value, std::less<>>;

class Interpreter {
 public:
  Interpreter(const Program& program, const Variables& variables, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Text Run();

  // Errors, at the node that is being evaluated. `kind` is Python's or Jinja's name of it.
  [[noreturn]] void Fail(std::string_view kind, const std::string& detail, const std::string& shown = "") const;
  [[noreturn]] void FailType(const std::string& detail) const { Fail("TypeError", detail); }
  [[noreturn]] void FailLimit(const std::string& detail) const;
  [[noreturn]] void FailUndefined(const Value& undefined) const;
  [[noreturn]] void FailUnsupported(const std::string& what) const;

  // The budget. A tick is the evaluation of one node; eight are a step of RenderLimits.
  void Charge(uint64_t ticks);
  void ChargeScan(size_t bytes) { Charge(1 + bytes / 64); }  // bytes looked at
  void ChargeItems(size_t count) { Charge(4 * count); }      // values made
  const RenderLimits& limits() const { return options_.limits; }
  const RenderOptions& options() const { return options_; }

  // New values, charged and bounded.
  Value NewString(Text text);
  Value NewList(std::vector<Value> items);
  Value NewTuple(std::vector<Value> items);
  Value NewNamespace(const DictObject& attributes);
  Value NewIterator(IteratorPtr iterator);
  // Keeps an object that a template may tie into a cycle until the end.
  void Keep(std::shared_ptr<LoopObject> loop) { loops_.push_back(std::move(loop)); }
  // Undefined with a message of its own.
  Value NewUndefined(std::string hint);

  // Comparing, charged by weight.
  bool Equals(const Value& a, const Value& b);
  bool LessThan(const Value& a, const Value& b, std::string_view op = "<");
  bool Compare(CompareOp op, const Value& left, const Value& right);
  // The key itself; TypeError when it is not hashable.
  const Value& CheckKey(const Value& key);
  const Value* Lookup(const DictObject& dict, const Value& key);

  // str(), len(), list(), iter() with their errors.
  Text ToText(const Value& value);
  int64_t LengthOf(const Value& value);
  std::vector<Value> ToItems(const Value& value);
  IteratorPtr Iterate(const Value& value);
  bool CanIterate(const Value& value) const;

  Value Call(const Value& callee, Arguments args);
  Value CallFilter(std::string_view name, const Value& value, Arguments args);
  bool CallTest(std::string_view name, const Value& value, Arguments args);

  // Subscripts with the sandbox's rules: `a.b` prefers attributes, `a['b']` items.
  Value GetAttribute(const Value& object, std::string_view name);
  Value GetItem(const Value& object, const Value& key);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;
  class CallDepth;
  class FilteredLoop;
  friend class FilteredLoop;

  // Statements.
  Flow Execute(const Body& body);
  Flow Execute(const Stmt& node);
  void ExecuteOutput(const Stmt& node);
  Flow ExecuteFor(const Stmt& node);
  Flow RunLoop(const Stmt& node, const Value& iterable, int depth0);
  Flow ExecuteIf(const Stmt& node);
  void ExecuteCallBlock(const Stmt& node);
  Flow ExecuteCapture(const Stmt& node);
  Flow ExecuteWith(const Stmt& node);
  void EnterScope(const ScopeLoads& loads);
  void Assign(const Expr& target, const Value& value);
  void CheckNamespaces(const Expr& target);
  void Unpack(const Expr& target, const Value& value);
  void Emit(const Text& text);
  void EmitString(const Value& value);

  // Expressions.
  Value Evaluate(const Expr& node);
  Value EvaluateBinary(const Expr& node);
  Value EvaluateConcat(const Expr& node);
  Value EvaluateCompare(const Expr& node);

  bool CompareOrder(const Value& left, const Value& right, std::string_view op);
  Value EvaluateItem(const Expr& node);
  Value EvaluateCall(const Expr& node, const Value* caller);
  Value EvaluateFilter(const Expr& node, const Value* block);
  bool EvaluateTest(const Expr& node);
  Value EvaluateDict(const Expr& node);
  std::vector<Value> EvaluateParts(const Expr& node);
  Arguments EvaluateArguments(const CallArgs& args);

  // Calls.
  Value NewMacro(const Stmt& node);
  Value CallMacro(const MacroObject& macro, Arguments args);
  void BindMacro(const MacroObject& macro, Arguments args, std::vector<Value>* slots) const;
  Value CallLoop(LoopObject& loop, Arguments args);

  Value& At(const Slot& slot);
  Value Resolve(std::string_view name) const;
  void CheckTime();

  const Program& program_;
  const Variables& variables_;
  const RenderOptions& options_;
  const Place* place_;
  uint64_t ticks_ = 0;
  uint64_t tick_limit_;
  uint64_t next_time_check_ = 0;
  int64_t deadline_ns_;
  int call_depth_ = 0;
  StackMeter stack_;
  std::shared_ptr<Activation> activation_;
  Text* output_ = nullptr;
  // What templates can tie into cycles; emptied at the end.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<Activation>> captured_;
  std::vector<std::shared_ptr<LoopObject>> loops_;
};

// Makes an iterator from `next`, which sets its argument and returns true, or returns false at the end. `holds` is what
// it reads from.
IteratorPtr MakeIterator(const Value& holds, std::function<bool(Interpreter&, Value*)> next);

// Arguments by parameter name, in order, kMissing where not given; the first `required` must be. Extra ones are errors.
std::vector<Value> Bind(Interpreter& interpreter, std::string_view function, Arguments& args,
                        const std::vector<std::string_view>& parameters, size_t required = 0);

// attributes.cc: an attribute or method of a value; kMissing when it has none of this name. Sets `unsafe` when it has,
// but the sandbox hides it.
Value FindAttribute(Interpreter& interpreter, const Value& object, std::string_view name, bool* unsafe);
// globals.cc: a built-in function of this name, or kMissing.
Value FindGlobal(std::string_view name);
// operators.cc
Value ApplyBinary(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right);
Value ApplyNegate(Interpreter& interpreter, const Value& value);
Value ApplySlice(Interpreter& interpreter, const Value& object, const Value& start, const Value& stop,
                 const Value& step);
bool Contains(Interpreter& interpreter, const Value& container, const Value& item);
// An index argument: int or bool, else TypeError with `what`.
int64_t ToIndex(Interpreter& interpreter, const Value& value, const std::string& error);
// Text with &, <, >, " and ' as entities, marked as HTML; text that already is stays.
Text EscapeHtml(const Text& text);

}  // namespace octavo::text::jinja
