#include "octavo/text/template_scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "octavo/text/template_error.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_lexer.h"

namespace octavo::text::jinja {
namespace {

// A variable of the scope `level` deep. Two scopes side by side at one level share it, never at the same time.
struct Ident {
  int level = 0;
  std::string name;
  auto operator<=>(const Ident&) const = default;
};

struct Load {
  enum class Action { kParameter, kResolve, kAlias, kUndefined };
  Action action = Action::kUndefined;
  Ident from;  // kAlias
};

// The names of one scope while it is analysed. The branches of an if are analysed each on a layer of its own over the
// scope, then joined into it.
class Symbols {
 public:
  explicit Symbols(const Symbols* parent) : level_(parent == nullptr ? 0 : parent->level_ + 1), parent_(parent) {}
  static Symbols LayerOver(const Symbols* below) {
    Symbols layer(below->parent_);
    layer.below_ = below;
    return layer;
  }

  const Ident* Find(const std::string& name) const {
    if (const Ident* own = FindOwn(name)) return own;
    return parent_ == nullptr ? nullptr : parent_->Find(name);
  }
  void Read(const std::string& name) {
    if (Find(name) == nullptr) Define(name, {Load::Action::kResolve, {}});
  }
  void Assign(const std::string& name) {
    stores_.insert(name);
    if (FindOwn(name) != nullptr) return;
    const Ident* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
    Define(name, outer == nullptr ? Load{} : Load{Load::Action::kAlias, *outer});
  }
  void Parameter(const std::string& name) {
    stores_.insert(name);
    Define(name, {Load::Action::kParameter, {}});
  }
  // Joins layers: what only a branch assigns starts as it was outside.
  void Join(const std::vector<Symbols>& branches) {
    std::set<std::string> assigned;
    for (const Symbols& branch : branches)
      for (const std::string& name : branch.stores_)
        if (!Stores(name)) assigned.insert(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, ident] : branch.refs_) refs_[name] = ident;
      for (const auto& [ident, load] : branch.loads_) loads_[ident] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : assigned) {
      const Ident* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
      loads_[*FindOwn(name)] = outer == nullptr ? Load{Load::Action::kResolve, {}} : Load{Load::Action::kAlias, *outer};
    }
  }

  int level() const { return level_; }
  const std::map<Ident, Load>& loads() const { return loads_; }

 private:
  const Ident* FindOwn(const std::string& name) const {
    for (const Symbols* layer = this; layer != nullptr; layer = layer->below_)
      if (const auto found = layer->refs_.find(name); found != layer->refs_.end()) return &found->second;
    return nullptr;
  }
  bool Stores(const std::string& name) const {
    for (const Symbols* layer = this; layer != nullptr; layer = layer->below_)
      if (layer->stores_.count(name) != 0) return true;
    return false;
  }
  void Define(const std::string& name, Load load) {
    const Ident ident{level_, name};
    refs_[name] = ident;
    loads_[ident] = std::move(load);
  }

  int level_;
  const Symbols* parent_;
  const Symbols* below_ = nullptr;
  std::map<std::string, Ident> refs_;
  std::map<Ident, Load> loads_;
  std::set<std::string> stores_;
};

// Which names a scope reads and assigns. Stops at inner scopes, except for what they evaluate outside.
class Collector {
 public:
  explicit Collector(Symbols* symbols) : symbols_(symbols) {}

  void CollectBody(const Body& body) {
    for (const StmtPtr& statement : body) Collect(*statement);
  }

  void Collect(const Stmt& node) {
    switch (node.kind) {
      case StmtKind::kOutput:
        for (const auto& [text, value] : node.output) Read(value.get());
        break;
      case StmtKind::kFor:
      case StmtKind::kCallBlock:
      case StmtKind::kFilterBlock:
        Read(node.value.get());
        break;
      case StmtKind::kIf:
        CollectIf(node);
        break;
      case StmtKind::kMacro:
        symbols_->Assign(node.function->name);
        break;
      case StmtKind::kWith:
        for (const auto& [target, value] : node.assignments) Read(value.get());
        break;
      case StmtKind::kAssign:
        Read(node.value.get());
        AssignTo(*node.target);
        break;
      case StmtKind::kAssignBlock:
        AssignTo(*node.target);
        break;
      case StmtKind::kGeneration:
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        break;
    }
  }

  void Read(const Expr* node) {
    if (node == nullptr) return;
    if (node->kind == ExprKind::kName) symbols_->Read(node->name);
    for (const ExprPtr& part : node->parts) Read(part.get());
    if (!node->args) return;
    for (const ExprPtr& part : node->args->positional) Read(part.get());
    for (const auto& [name, part] : node->args->named) Read(part.get());
    Read(node->args->star.get());
    Read(node->args->star_star.get());
  }

  void AssignTo(const Expr& target, bool as_parameter = false) {
    if (target.kind == ExprKind::kAttributeTarget) {
      symbols_->Read(target.object_name);
    } else if (target.kind == ExprKind::kName) {
      as_parameter ? symbols_->Parameter(target.name) : symbols_->Assign(target.name);
    } else {
      for (const ExprPtr& part : target.parts) AssignTo(*part, as_parameter);
    }
  }

 private:
  // Jinja nests each elif as an if of its own inside the "elif" branch.
  void CollectIf(const Stmt& node) {
    Symbols* const original = symbols_;
    Read(node.branches[0].test.get());
    std::vector<Symbols> joined;
    const auto branch = [&](auto&& visit) {
      Symbols layer = Symbols::LayerOver(original);
      symbols_ = &layer;
      visit();
      symbols_ = original;
      joined.push_back(std::move(layer));
    };
    branch([&] { CollectBody(node.branches[0].body); });
    branch([&] {
      for (size_t i = 1; i < node.branches.size() && node.branches[i].test; ++i) CollectElif(node.branches[i]);
    });
    branch([&] {
      if (!node.branches.back().test) CollectBody(node.branches.back().body);
    });
    original->Join(joined);
  }

  void CollectElif(const Branch& branch) {
    Symbols* const original = symbols_;
    Read(branch.test.get());
    Symbols layer = Symbols::LayerOver(original);
    symbols_ = &layer;
    CollectBody(branch.body);
    symbols_ = original;
    original->Join({layer});
  }

  Symbols* symbols_;
};

// Slots of one function of the template while it is resolved.
struct FunctionScope {
  Function* function = nullptr;
  FunctionScope* parent = nullptr;
  int base_level = 0;
  std::map<Ident, int> slots;
};

struct Frame {
  const Symbols* symbols;
  FunctionScope* function;
  bool soft = false;     // directly under an if: an unknown filter is an error only when it runs
  bool in_loop = false;  // break is allowed
};

class Resolver {
 public:
  explicit Resolver(Program* program) : program_(program) {}

  void Run() {
    Symbols symbols(nullptr);
    Collector(&symbols).CollectBody(program_->body);
    FunctionScope scope{&program_->root, nullptr, 0, {}};
    Frame frame{&symbols, &scope};
    program_->root.loads = Enter(frame);
    VisitBody(program_->body, frame);
    program_->root.slot_count = static_cast<int>(scope.slots.size());
    program_->inputs.assign(inputs_.begin(), inputs_.end());
  }

 private:
  [[noreturn]] void Fail(const char* kind, const std::string& message, Place place,
                         const std::string& shown = "") const {
    throw TemplateError(ErrorCode::kFile, kind, message, place.line, shown, Excerpt(program_->source, place.position));
  }

  Slot Find(const Ident& ident, FunctionScope* function) {
    Slot slot;
    while (function->base_level > ident.level) {
      function = function->parent;
      ++slot.hops;
    }
    slot.index = function->slots.emplace(ident, static_cast<int>(function->slots.size())).first->second;
    return slot;
  }
  Slot Find(const std::string& name, const Frame& frame) { return Find(*frame.symbols->Find(name), frame.function); }

  ScopeLoads Enter(const Frame& frame) {
    ScopeLoads loads;
    for (const auto& [ident, load] : frame.symbols->loads()) {
      SlotLoad made;
      made.slot = Find(ident, frame.function).index;
      switch (load.action) {
        case Load::Action::kParameter:
          continue;
        case Load::Action::kResolve:
          made.action = SlotLoad::Action::kResolve;
          made.name = ident.name;
          if (!IsGlobalName(ident.name)) inputs_.insert(ident.name);
          break;
        case Load::Action::kAlias:
          made.action = SlotLoad::Action::kAlias;
          made.from = Find(load.from, frame.function);
          break;
        case Load::Action::kUndefined:
          made.action = SlotLoad::Action::kUnset;
          break;
      }
      loads.push_back(std::move(made));
    }
    return loads;
  }

  void VisitBody(Body& body, const Frame& frame) {
    for (StmtPtr& statement : body) Visit(*statement, frame);
  }

  void Visit(Stmt& node, const Frame& frame) {
    switch (node.kind) {
      case StmtKind::kOutput:
        for (auto& [text, value] : node.output) Visit(value.get(), frame);
        break;
      case StmtKind::kFor:
        VisitFor(node, frame);
        break;
      case StmtKind::kIf: {
        Frame inner = frame;
        inner.soft = true;
        for (Branch& branch : node.branches) {
          Visit(branch.test.get(), inner);
          VisitBody(branch.body, inner);
        }
        break;
      }
      case StmtKind::kMacro:
        VisitFunction(node, frame);
        node.slot = Find(node.function->name, frame);
        break;
      case StmtKind::kCallBlock:
        VisitFunction(node, frame);
        Visit(node.value.get(), frame);
        break;
      case StmtKind::kGeneration:
        program_->has_generation = true;
        VisitFunction(node, frame);
        break;
      case StmtKind::kFilterBlock:
      case StmtKind::kAssignBlock:
        VisitCapture(node, frame);
        break;
      case StmtKind::kWith:
        VisitWith(node, frame);
        break;
      case StmtKind::kAssign:
        Visit(node.value.get(), frame);
        Visit(node.target.get(), frame);
        break;
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (!frame.in_loop)
          Fail("SyntaxError",
               node.kind == StmtKind::kBreak ? "'break' outside loop" : "'continue' not properly in loop", node.place);
        break;
    }
  }

  void Visit(Expr* node, const Frame& frame) {
    if (node == nullptr) return;
    Frame inner = frame;
    switch (node->kind) {
      case ExprKind::kName:
        if (node->name == "self" || node->name == "super")
          Fail("TemplateSyntaxError", fmt::format("the name '{}' is not supported", node->name), node->place);
        node->slot = Find(node->name, frame);
        return;
      case ExprKind::kAttributeTarget:
        node->slot = Find(node->object_name, frame);
        return;
      case ExprKind::kCond:
        inner.soft = true;
        break;
      case ExprKind::kFilter:
        node->filter = FindFilter(node->name);
        if (node->filter == nullptr && !frame.soft) FailUnknown("filter", *node);
        break;
      case ExprKind::kTest:
        node->test = FindTest(node->name);
        if (node->test == nullptr && !frame.soft) FailUnknown("test", *node);
        break;
      default:
        break;
    }
    for (ExprPtr& part : node->parts) Visit(part.get(), inner);
    if (!node->args) return;
    for (ExprPtr& part : node->args->positional) Visit(part.get(), inner);
    for (auto& [name, part] : node->args->named) Visit(part.get(), inner);
    Visit(node->args->star.get(), inner);
    Visit(node->args->star_star.get(), inner);
  }

  [[noreturn]] void FailUnknown(const char* what, const Expr& node) const {
    Fail("TemplateAssertionError", fmt::format("No {} named '{}'.", what, node.name), node.place,
         fmt::format("{} '{}' is not supported", what, node.name));
  }

  void VisitFor(Stmt& node, const Frame& frame) {
    FailOnLoopTarget(node);
    Visit(node.value.get(), frame);
    FunctionScope own{nullptr, frame.function, frame.symbols->level() + 1, {}};
    FunctionScope* function = frame.function;
    if (node.recursive) {
      node.function = std::make_unique<Function>();
      own.function = node.function.get();
      function = &own;
    }
    if (node.test) VisitForTest(node, frame);

    Symbols symbols(frame.symbols);
    const bool uses_loop = node.recursive || MentionsAny(node.body, {"loop"}).count("loop") != 0;
    if (uses_loop) symbols.Parameter("loop");
    Collector collector(&symbols);
    collector.AssignTo(*node.target, true);
    collector.CollectBody(node.body);
    Frame inner{&symbols, function};
    inner.in_loop = true;
    if (uses_loop) node.loop_slot = Find("loop", inner).index;
    node.loads = Enter(inner);
    Visit(node.target.get(), inner);
    VisitBody(node.body, inner);

    if (!node.else_body.empty()) {
      Symbols else_symbols(frame.symbols);
      Collector(&else_symbols).CollectBody(node.else_body);
      Frame else_frame{&else_symbols, function};
      else_frame.in_loop = frame.in_loop && !node.recursive;
      node.else_loads = Enter(else_frame);
      VisitBody(node.else_body, else_frame);
    }
    if (node.recursive) node.function->slot_count = static_cast<int>(own.slots.size());
  }

  // The test of `for x in y if test` runs in slots of its own, before the body's scope exists.
  void VisitForTest(Stmt& node, const Frame& frame) {
    Symbols symbols(frame.symbols);
    Collector collector(&symbols);
    collector.AssignTo(*node.target, true);
    collector.Read(node.test.get());
    node.test_function = std::make_unique<Function>();
    FunctionScope own{node.test_function.get(), frame.function, frame.symbols->level() + 1, {}};
    Frame inner{&symbols, &own};
    node.test_function->loads = Enter(inner);
    node.test_target = CloneTarget(*node.target);
    Visit(node.test_target.get(), inner);
    Visit(node.test.get(), inner);
    node.test_function->slot_count = static_cast<int>(own.slots.size());
  }

  static ExprPtr CloneTarget(const Expr& target) {
    auto clone = std::make_unique<Expr>();
    clone->kind = target.kind;
    clone->place = target.place;
    clone->name = target.name;
    for (const ExprPtr& part : target.parts) clone->parts.push_back(CloneTarget(*part));
    return clone;
  }

  void VisitFunction(Stmt& node, const Frame& frame) {
    Function& function = *node.function;
    Symbols symbols(frame.symbols);
    const auto collect = [&] {
      Collector collector(&symbols);
      for (const std::string& name : function.parameters) symbols.Parameter(name);
      for (const ExprPtr& value : function.defaults) collector.Read(value.get());
      collector.CollectBody(node.body);
    };
    collect();
    const std::set<std::string> special = MentionsAny(node.body, {"caller", "kwargs", "varargs"});
    const auto declared = [&](const char* name) {
      return std::find(function.parameters.begin(), function.parameters.end(), name) != function.parameters.end();
    };
    if (special.count("caller") != 0 && declared("caller")) CheckCallerDefault(node);
    std::vector<std::pair<const char*, int*>> extra = {
        {"caller", &function.caller_slot}, {"kwargs", &function.kwargs_slot}, {"varargs", &function.varargs_slot}};
    for (const auto& [name, slot] : extra)
      if (special.count(name) != 0 && !declared(name)) symbols.Parameter(name);

    FunctionScope scope{&function, frame.function, symbols.level(), {}};
    Frame inner{&symbols, &scope};
    for (const std::string& name : function.parameters) function.parameter_slots.push_back(Find(name, inner).index);
    for (const auto& [name, slot] : extra)
      if (special.count(name) != 0 && !declared(name)) *slot = Find(name, inner).index;
    function.loads = Enter(inner);
    for (ExprPtr& value : function.defaults) Visit(value.get(), inner);
    VisitBody(node.body, inner);
    function.slot_count = static_cast<int>(scope.slots.size());
  }

  void CheckCallerDefault(const Stmt& node) const {
    const Function& function = *node.function;
    const auto found = std::find(function.parameters.begin(), function.parameters.end(), "caller");
    const size_t from_end = static_cast<size_t>(function.parameters.end() - found);
    if (from_end > function.defaults.size())
      Fail("TemplateAssertionError",
           "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.",
           node.place);
  }

  void VisitCapture(Stmt& node, const Frame& frame) {
    Symbols symbols(frame.symbols);
    Collector collector(&symbols);
    collector.CollectBody(node.body);
    collector.Read(node.value.get());
    Frame inner{&symbols, frame.function};
    inner.in_loop = frame.in_loop;
    node.loads = Enter(inner);
    VisitBody(node.body, inner);
    Visit(node.value.get(), inner);
    if (node.target) Visit(node.target.get(), frame);
  }

  void VisitWith(Stmt& node, const Frame& frame) {
    Symbols symbols(frame.symbols);
    Collector collector(&symbols);
    for (const auto& [target, value] : node.assignments) collector.AssignTo(*target, true);
    collector.CollectBody(node.body);
    Frame inner{&symbols, frame.function};
    inner.in_loop = frame.in_loop;
    node.loads = Enter(inner);
    for (auto& [target, value] : node.assignments) {
      Visit(value.get(), frame);
      Visit(target.get(), inner);
    }
    VisitBody(node.body, inner);
  }

  // Which of `names` a body reads, inner scopes included. A name that is assigned first no longer counts.
  using Names = std::set<std::string>;
  static Names MentionsAny(const Body& body, Names names);
  void FailOnLoopTarget(const Stmt& node) const;

  Program* program_;
  std::set<std::string> inputs_;
};

// Calls `use(name, place, assigned)` for every name in a statement, inner scopes included, in source order.
class NameWalker {
 public:
  using Use = std::function<void(const std::string&, Place, bool)>;
  explicit NameWalker(Use use) : use_(std::move(use)) {}

  void WalkBody(const Body& body) {
    for (const StmtPtr& statement : body) Walk(*statement);
  }

  void Walk(const Stmt& node) {
    if (node.target) WalkTarget(*node.target);
    Walk(node.value.get());
    for (const auto& [text, value] : node.output) Walk(value.get());
    for (const auto& [target, value] : node.assignments) {
      WalkTarget(*target);
      Walk(value.get());
    }
    for (const Branch& branch : node.branches) {
      Walk(branch.test.get());
      WalkBody(branch.body);
    }
    if (node.function) {
      for (const std::string& name : node.function->parameters) use_(name, node.place, true);
      for (const ExprPtr& value : node.function->defaults) Walk(value.get());
    }
    WalkBody(node.body);
    WalkBody(node.else_body);
    Walk(node.test.get());
  }

  void Walk(const Expr* node) {
    if (node == nullptr) return;
    if (node->kind == ExprKind::kName) use_(node->name, node->place, false);
    for (const ExprPtr& part : node->parts) Walk(part.get());
    if (!node->args) return;
    for (const ExprPtr& part : node->args->positional) Walk(part.get());
    for (const auto& [name, part] : node->args->named) Walk(part.get());
    Walk(node->args->star.get());
    Walk(node->args->star_star.get());
  }

  void WalkTarget(const Expr& node) {
    if (node.kind == ExprKind::kName) use_(node.name, node.place, true);
    for (const ExprPtr& part : node.parts) WalkTarget(*part);
  }

 private:
  Use use_;
};

Resolver::Names Resolver::MentionsAny(const Body& body, Names names) {
  Names found;
  NameWalker([&](const std::string& name, Place, bool assigned) {
    if (names.count(name) == 0) return;
    if (assigned)
      names.erase(name);
    else
      found.insert(name);
  }).WalkBody(body);
  return found;
}

void Resolver::FailOnLoopTarget(const Stmt& node) const {
  NameWalker walker([&](const std::string& name, Place place, bool assigned) {
    if (assigned && name == "loop")
      Fail("TemplateAssertionError", "Can't assign to special loop variable in for-loop target", place);
  });
  if (node.target) walker.WalkTarget(*node.target);
  walker.WalkBody(node.body);
  walker.WalkBody(node.else_body);
}

}  // namespace

void ResolveScopes(Program* program) { Resolver(program).Run(); }

}  // namespace octavo::text::jinja
