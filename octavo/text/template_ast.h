// The tree of a parsed template. The parser builds it, the scope pass (template_scope.h) fills in where each name
// lives, the interpreter walks it. Immutable and shareable between threads once the scope pass is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// Where a node stands in the source.
struct Place {
  int line = 1;
  size_t position = 0;
};

// A variable: `hops` functions outwards, then a slot there.
struct Slot {
  int hops = 0;
  int index = -1;
};

// What to do with a slot when its scope is entered.
struct SlotLoad {
  enum class Action { kResolve, kAlias, kUnset };
  Action action = Action::kUnset;
  int slot = 0;
  Slot from;         // kAlias
  std::string name;  // kResolve: looked up in the inputs, then in the globals
};
using ScopeLoads = std::vector<SlotLoad>;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kAttributeTarget,  // ns.x on the left of =
  kTuple,
  kList,
  kDict,
  kCond,
  kOr,
  kAnd,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kConcat,
  kCompare,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

// Functions behind filter and test names; null when a name is unknown but its node may never run.
class Interpreter;
struct Arguments;
using FilterFunction = Value (*)(Interpreter&, const Value&, Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value&, Arguments&);

// One node for all expressions: which members are used depends on `kind`.
struct Expr {
  ExprKind kind;
  Place place;
  int depth = 1;                     // levels of nodes below, itself included
  Value constant;                    // kConst
  std::string name;                  // kName, kAttribute, kAttributeTarget (the attribute), kFilter, kTest
  std::string object_name;           // kAttributeTarget: the namespace
  Slot slot;                         // kName, kAttributeTarget
  BinaryOp binary = BinaryOp::kAdd;  // kBinary
  std::vector<CompareOp> compare;    // kCompare: one less than `parts`
  std::vector<ExprPtr> parts;        // operands in order; null where a slice leaves one out
  std::optional<CallArgs> args;      // kCall, kFilter, kTest
  FilterFunction filter = nullptr;   // kFilter
  TestFunction test = nullptr;       // kTest
};

enum class StmtKind : uint8_t {
  kOutput,
  kFor,
  kIf,
  kMacro,
  kCallBlock,
  kGeneration,
  kFilterBlock,
  kWith,
  kAssign,
  kAssignBlock,
  kBreak,
  kContinue,
};

// The parameters and the inside of a macro, a call block, a {% generation %} block or a recursive loop. It runs with
// slots of its own.
struct Function {
  std::string name;
  bool anonymous = false;  // a call block's
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  // The scope pass fills in the rest.
  std::vector<int> parameter_slots;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: the body does not use it
  int slot_count = 0;
  ScopeLoads loads;
};

struct Branch {
  ExprPtr test;  // null: else
  Body body;
  Place place;
};

// One node for all statements: which members are used depends on `kind`.
struct Stmt {
  StmtKind kind;
  Place place;
  // kOutput: text and expressions in turn (an empty text is skipped).
  std::vector<std::pair<Text, ExprPtr>> output;
  ExprPtr target;          // kFor, kAssign, kAssignBlock
  ExprPtr value;           // kFor: what to iterate; kAssign; kCallBlock: the call; filters: a chain ending in no node
  ExprPtr test;            // kFor ... if
  Body body;               // all but kIf, kOutput, kAssign
  Body else_body;          // kFor
  bool recursive = false;  // kFor
  std::vector<Branch> branches;                          // kIf
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // kWith
  std::unique_ptr<Function> function;                    // kMacro, kCallBlock, kGeneration, recursive kFor
  // Filled in by the scope pass.
  Slot slot;           // kMacro: the variable that gets it
  int loop_slot = -1;  // kFor: -1 when the body does not use `loop`
  ScopeLoads loads;    // entering `body`
  ScopeLoads else_loads;
  std::unique_ptr<Function> test_function;  // kFor: slots of the test
  ExprPtr test_target;                      // kFor: the target in the test's slots
};

// A parsed template with the slots of its outermost scope.
struct Program {
  std::string source;
  Body body;
  Function root;
  bool has_generation = false;
  std::vector<std::string> inputs;  // names it reads from outside, sorted
};

}  // namespace octavo::text::jinja
