// Statements: what a template does.
#include <fmt/format.h>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_error.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_lexer.h"

namespace octavo::text::jinja {

// Collects what is printed during its lifetime.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter* interpreter) : interpreter_(interpreter), saved_(interpreter->output_) {
    interpreter_->output_ = &text;
  }
  ~Capture() { interpreter_->output_ = saved_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Text text;

 private:
  Interpreter* interpreter_;
  Text* saved_;
};

// The items of `for x in y if test`: the test runs as late as the loop asks for an item, as Jinja's does.
class Interpreter::FilteredLoop : public IteratorObject {
 public:
  FilteredLoop(const Stmt& node, IteratorPtr source, std::shared_ptr<Activation> parent)
      : node_(node), source_(std::move(source)), activation_(std::make_shared<Activation>()) {
    depth = source_->depth + 1;
    if (depth > kMaxValueDepth) throw Error(ErrorCode::kUsage, "iterators are nested too deeply");
    activation_->slots.resize(static_cast<size_t>(node.test_function->slot_count));
    activation_->parent = std::move(parent);
  }

  bool Next(Interpreter& interpreter, Value* item) override {
    std::shared_ptr<Activation> saved = std::exchange(interpreter.activation_, activation_);
    const Restore restore{&interpreter, &saved};
    if (!entered_) interpreter.EnterScope(node_.test_function->loads);
    entered_ = true;
    while (source_->Next(interpreter, item)) {
      interpreter.Assign(*node_.test_target, *item);
      if (IsTrue(interpreter.Evaluate(*node_.test))) return true;
    }
    return false;
  }

 private:
  struct Restore {
    Interpreter* interpreter;
    std::shared_ptr<Activation>* saved;
    ~Restore() { interpreter->activation_ = std::move(*saved); }
  };

  const Stmt& node_;
  IteratorPtr source_;
  std::shared_ptr<Activation> activation_;
  bool entered_ = false;
};

Text Interpreter::Run() {
  try {
    Text result;
    output_ = &result;
    activation_ = std::make_shared<Activation>();
    activation_->slots.resize(static_cast<size_t>(program_.root.slot_count));
    captured_.push_back(activation_);
    EnterScope(program_.root.loads);
    Execute(program_.body);
    return result;
  } catch (const TemplateError&) {
    throw;
  } catch (const Error& error) {
    // From below, where places are not known: nesting of values, JSON in from_json.
    FailLimit(error.message());
  }
}

void Interpreter::Emit(const Text& text) {
  Charge(text.size() / 16);
  if (output_->size() + text.size() > options_.limits.output_bytes)
    FailLimit(fmt::format("more than {} bytes of output", options_.limits.output_bytes));
  output_->Append(text);
}

// What a filter block or a call block gives is joined as it is: Jinja does not turn it into a string first.
void Interpreter::EmitString(const Value& value) {
  if (!value.is_string()) FailType(fmt::format("sequence item 0: expected str instance, {} found", TypeName(value)));
  Emit(value.text());
}

void Interpreter::EnterScope(const ScopeLoads& loads) {
  for (const SlotLoad& load : loads) {
    Value& slot = activation_->slots[static_cast<size_t>(load.slot)];
    switch (load.action) {
      case SlotLoad::Action::kUnset:
        slot = Value();
        break;
      case SlotLoad::Action::kAlias:
        slot = At(load.from);
        break;
      case SlotLoad::Action::kResolve:
        slot = Resolve(load.name);
        break;
    }
  }
}

Value Interpreter::Resolve(std::string_view name) const {
  const auto found = variables_.find(name);
  return found != variables_.end() ? found->second : FindGlobal(name);
}

Value& Interpreter::At(const Slot& slot) {
  Activation* activation = activation_.get();
  for (int i = 0; i < slot.hops; ++i) activation = activation->parent.get();
  return activation->slots[static_cast<size_t>(slot.index)];
}

Interpreter::Flow Interpreter::Execute(const Body& body) {
  for (const StmtPtr& statement : body)
    if (const Flow flow = Execute(*statement); flow != Flow::kNormal) return flow;
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Execute(const Stmt& node) {
  place_ = &node.place;
  Charge(8);
  if (stack_.Used() > kMaxStackBytes) FailLimit("blocks and calls are nested too deeply");
  switch (node.kind) {
    case StmtKind::kOutput:
      ExecuteOutput(node);
      return Flow::kNormal;
    case StmtKind::kFor:
      return ExecuteFor(node);
    case StmtKind::kIf:
      return ExecuteIf(node);
    case StmtKind::kMacro:
      At(node.slot) = NewMacro(node);
      return Flow::kNormal;
    case StmtKind::kCallBlock:
    case StmtKind::kGeneration:
      ExecuteCallBlock(node);
      return Flow::kNormal;
    case StmtKind::kFilterBlock:
    case StmtKind::kAssignBlock:
      return ExecuteCapture(node);
    case StmtKind::kWith:
      return ExecuteWith(node);
    case StmtKind::kAssign: {
      CheckNamespaces(*node.target);
      const Value value = Evaluate(*node.value);
      place_ = &node.place;
      Assign(*node.target, value);
      return Flow::kNormal;
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::ExecuteOutput(const Stmt& node) {
  for (const auto& [text, expression] : node.output) {
    if (expression) {
      const Value value = Evaluate(*expression);
      place_ = &expression->place;
      if (value.is_string())
        Emit(value.text());
      else
        Emit(ToText(value));
    } else {
      Emit(text);
    }
  }
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& node) {
  for (const Branch& branch : node.branches)
    if (!branch.test || IsTrue(Evaluate(*branch.test))) return Execute(branch.body);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteFor(const Stmt& node) {
  const Value iterable = Evaluate(*node.value);
  place_ = &node.place;
  if (!node.recursive) return RunLoop(node, iterable, 0);
  LoopObject start;
  start.recursive = &node;
  start.closure = activation_;
  start.depth0 = -1;
  Emit(CallLoop(start, {{iterable}, {}}).text());
  return Flow::kNormal;
}

// In a recursive loop the current activation is the loop's own.
Interpreter::Flow Interpreter::RunLoop(const Stmt& node, const Value& iterable, int depth0) {
  IteratorPtr iterator = Iterate(iterable);
  if (node.test)
    iterator = std::make_shared<FilteredLoop>(node, iterator, node.recursive ? activation_->parent : activation_);
  std::shared_ptr<LoopObject> loop;
  Value loop_value;
  if (node.loop_slot >= 0) {
    loop = std::make_shared<LoopObject>();
    loop->iterable = node.test ? NewIterator(iterator) : iterable;
    loop->depth = std::max(iterator->depth, iterable.depth()) + 1;
    loop->iterator = iterator;
    loop->depth0 = depth0;
    if (node.recursive) {
      loop->recursive = &node;
      loop->closure = activation_->parent;
      captured_.push_back(loop->closure);
    }
    if (node.test) captured_.push_back(activation_);  // the test's slots refer to it, and it will hold the loop
    loop_value = Value::FromObject(Kind::kLoop, loop);
    if (loop->depth > kMaxValueDepth) FailLimit("iterators are nested too deeply");
  }
  bool ran = false;
  while (true) {
    Value item;
    if (loop && !loop->after.missing()) {
      item = std::exchange(loop->after, Value());
    } else if (!(loop ? loop->iterator : iterator)->Next(*this, &item)) {
      break;
    }
    if (loop) {
      ++loop->index0;
      loop->before = std::exchange(loop->current, item);
      activation_->slots[static_cast<size_t>(node.loop_slot)] = loop_value;
    }
    place_ = &node.place;
    Assign(*node.target, item);
    EnterScope(node.loads);
    const Flow flow = Execute(node.body);
    if (flow == Flow::kBreak) break;
    // As in Jinja, only an iteration that reaches its end keeps the else branch from running.
    if (flow == Flow::kNormal) ran = true;
  }
  // The variables of the last iteration end with the loop.
  for (const SlotLoad& load : node.loads) activation_->slots[static_cast<size_t>(load.slot)] = Value();
  if (loop) activation_->slots[static_cast<size_t>(node.loop_slot)] = Value();
  if (node.else_body.empty() || ran) return Flow::kNormal;
  EnterScope(node.else_loads);
  return Execute(node.else_body);
}

void Interpreter::ExecuteCallBlock(const Stmt& node) {
  const Value caller = NewMacro(node);
  if (node.kind == StmtKind::kGeneration) {
    Text text = Call(caller, {}).text();
    text.AddMarks(kGenerated);
    Emit(text);
    return;
  }
  EmitString(EvaluateCall(*node.value, &caller));
}

Interpreter::Flow Interpreter::ExecuteCapture(const Stmt& node) {
  EnterScope(node.loads);
  Value captured;
  {
    Capture capture(this);
    if (const Flow flow = Execute(node.body); flow != Flow::kNormal) return flow;
    captured = NewString(std::move(capture.text));
  }
  place_ = &node.place;
  const Value result = node.value ? EvaluateFilter(*node.value, &captured) : captured;
  if (node.kind == StmtKind::kFilterBlock) {
    EmitString(result);
  } else {
    CheckNamespaces(*node.target);
    Assign(*node.target, result);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteWith(const Stmt& node) {
  EnterScope(node.loads);
  for (const auto& [target, value] : node.assignments) Assign(*target, Evaluate(*value));
  return Execute(node.body);
}

void Interpreter::CheckNamespaces(const Expr& target) {
  if (target.kind == ExprKind::kAttributeTarget) {
    if (!At(target.slot).is(Kind::kNamespace))
      Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    return;
  }
  for (const ExprPtr& part : target.parts) CheckNamespaces(*part);
}

void Interpreter::Assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case ExprKind::kName:
      At(target.slot) = value;
      return;
    case ExprKind::kAttributeTarget: {
      if (target.name.starts_with('_'))
        Fail("SecurityError",
             fmt::format("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{}'. "
                         "Please rename the attribute.",
                         target.name));
      const Value space = At(target.slot);
      if (!space.is(Kind::kNamespace)) Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
      space.object<NamespaceObject>().attributes.Set(target.name, value);
      return;
    }
    default:
      Unpack(target, value);
  }
}

void Interpreter::Unpack(const Expr& target, const Value& value) {
  if (!CanIterate(value)) FailType(fmt::format("cannot unpack non-iterable {} object", TypeName(value)));
  const size_t count = target.parts.size();
  std::vector<Value> items;
  const IteratorPtr iterator = Iterate(value);
  Value item;
  while (items.size() <= count && iterator->Next(*this, &item)) items.push_back(std::move(item));
  if (items.size() > count) Fail("ValueError", fmt::format("too many values to unpack (expected {})", count));
  if (items.size() < count)
    Fail("ValueError", fmt::format("not enough values to unpack (expected {}, got {})", count, items.size()));
  for (size_t i = 0; i < count; ++i) Assign(*target.parts[i], items[i]);
}

Value Interpreter::NewMacro(const Stmt& node) {
  auto macro = std::make_shared<MacroObject>();
  macro->function = node.function.get();
  macro->body = &node.body;
  macro->closure = activation_;
  if (captured_.back() != activation_) captured_.push_back(activation_);
  return Value::FromObject(Kind::kMacro, std::move(macro));
}

// Here, beside Capture: the body of a macro is what it returns.
Value Interpreter::CallMacro(const MacroObject& macro, Arguments args) {
  const Function& function = *macro.function;
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(static_cast<size_t>(function.slot_count));
  activation->parent = macro.closure;
  BindMacro(macro, std::move(args), &activation->slots);
  std::swap(activation_, activation);
  const Place* const place = place_;
  Text result;
  try {
    EnterScope(function.loads);
    const size_t required = function.parameters.size() - function.defaults.size();
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      Value& slot = activation_->slots[static_cast<size_t>(function.parameter_slots[i])];
      if (!slot.missing()) continue;
      if (i >= required) {
        Value value = Evaluate(*function.defaults[i - required]);
        activation_->slots[static_cast<size_t>(function.parameter_slots[i])] = std::move(value);
      } else {
        slot = NewUndefined(fmt::format("parameter '{}' was not provided", function.parameters[i]));
      }
    }
    Capture capture(this);
    Execute(*macro.body);
    result = std::move(capture.text);
  } catch (...) {
    std::swap(activation_, activation);
    throw;
  }
  std::swap(activation_, activation);
  place_ = place;
  return NewString(std::move(result));
}

Value Interpreter::CallLoop(LoopObject& loop, Arguments args) {
  const std::vector<Value> bound = Bind(*this, "__call__", args, {"iterable"}, 1);
  if (loop.recursive == nullptr) FailType("The loop must have the 'recursive' marker to be called recursively.");
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(static_cast<size_t>(loop.recursive->function->slot_count));
  activation->parent = loop.closure;
  const Stmt& node = *loop.recursive;
  const int depth0 = loop.depth0 + 1;
  std::swap(activation_, activation);
  captured_.push_back(activation_);
  Text result;
  try {
    Capture capture(this);
    RunLoop(node, bound[0], depth0);
    result = std::move(capture.text);
  } catch (...) {
    std::swap(activation_, activation);
    throw;
  }
  std::swap(activation_, activation);
  return NewString(std::move(result));
}

}  // namespace octavo::text::jinja
