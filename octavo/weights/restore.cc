#include "octavo/weights/restore.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/fault_list.h"
#include "octavo/weights/maxtext_names.h"

namespace octavo::weights {
namespace {

// Where one parameter comes from.
struct Origin {
  const SourceTensor* stored = nullptr;
  int axis = -1;  // of the layers in a stack; -1: the tensor is the parameter itself
  int64_t layer = 0;
};

// Number of layers of each stack of the model: "decoder/moe_layers/…" -> 58.
std::map<std::string, int64_t> StackLengths(std::span<ops::Parameter* const> parameters) {
  std::map<std::string, int64_t> lengths;
  for (const ops::Parameter* parameter : parameters) {
    if (const auto stacked = ScannedNameOf(parameter->name)) {
      int64_t& length = lengths[stacked->name];
      length = std::max(length, stacked->layer + 1);
    }
  }
  return lengths;
}

class Matcher {
 public:
  Matcher(const Source& source, const RestoreOptions& options) : source_(source), options_(options) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : source.tensors) names.push_back(name);
    collection_ = CollectionOf(names);
  }

  // Finds the parameter's origin, or notes what is wrong.
  Origin Match(const ops::Parameter& parameter, const std::map<std::string, int64_t>& lengths) {
    const auto stacked = ScannedNameOf(parameter.name);
    const SourceTensor* own = Use(parameter.name);
    const SourceTensor* stack = stacked ? Use(stacked->name) : nullptr;
    if (own != nullptr && stack != nullptr) {
      Fault(stacked->name, fmt::format("superfluous: '{}' is there by itself too", parameter.name));
    }
    if (own != nullptr) {
      Check(parameter.name, *own, parameter.shape(), parameter.tensor().dtype());
      return {own, -1, 0};
    }
    if (stack != nullptr) {
      const Shape wanted = StackedShape(parameter.shape(), lengths.at(stacked->name), options_.param_scan_axis);
      Check(stacked->name, *stack, wanted, parameter.tensor().dtype());
      return {stack, ScanAxisOf(parameter.shape(), options_.param_scan_axis), stacked->layer};
    }
    missing_.push_back(parameter.name);
    return {};
  }

  void CheckSuperfluous() {
    for (const auto& [name, tensor] : source_.tensors) {
      if (used_.contains(name)) continue;
      Fault(name.substr(collection_.size()),
            fmt::format("superfluous: the model has no such parameter ({}{})", NameOf(tensor.dtype), tensor.shape));
      unused_.push_back(name.substr(collection_.size()));
    }
  }

  void ThrowFaults() {
    for (const std::string& name : missing_) Fault(name, "missing" + Nearest(name));
    if (faults_.empty()) return;
    FaultList list;
    for (const auto& [name, fault] : faults_) list.Add(fmt::format("{}: {}", name, fault));
    throw Error(
        ErrorCode::kFile,
        fmt::format("{}: {} of its tensors do not fit the model; nothing was loaded", source_.where, faults_.size()),
        list.Text() +
            "the model is what the configuration says (model_name, base_*, scan_layers, param_scan_axis); "
            "load with the configuration the weights were saved with");
  }

 private:
  const SourceTensor* Use(const std::string& name) {
    const auto found = source_.tensors.find(collection_ + name);
    if (found == source_.tensors.end()) return nullptr;
    used_.insert(found->first);
    return &found->second;
  }

  void Fault(const std::string& name, std::string text) { faults_.emplace(name, std::move(text)); }

  void Check(const std::string& name, const SourceTensor& stored, const Shape& wanted, DType dtype) {
    std::string fault;
    if (stored.shape != wanted) {
      std::vector<int64_t> a(stored.shape.begin(), stored.shape.end()), b(wanted.begin(), wanted.end());
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      fault =
          fmt::format("expected shape {}, found {}{}", wanted, stored.shape, a == b ? " (axes in another order)" : "");
    }
    const bool convertible = options_.convert_floats && ConvertsFloats(stored.dtype, dtype);
    if (stored.dtype != dtype && !convertible) {
      fault += fmt::format("{}expected {}, found {}", fault.empty() ? "" : "; ", NameOf(dtype), NameOf(stored.dtype));
    }
    if (!fault.empty()) Fault(name, fault);
  }

  std::string Nearest(const std::string& name) const {
    std::vector<std::string_view> known(unused_.begin(), unused_.end());
    std::string text;
    for (const std::string& near : NearestNames(name, known, 1)) text = fmt::format("; did you mean '{}'?", near);
    return text;
  }

  const Source& source_;
  const RestoreOptions& options_;
  std::string collection_;
  std::set<std::string> used_;
  std::vector<std::string> missing_, unused_;
  std::map<std::string, std::string> faults_;
};

// Contiguous layers of a stack, so that each stack is read and kept only while its layers are filled.
Tensor LayerOf(const Tensor& stack, int axis, int64_t layer) { return stack.Select(axis, layer).Clone(); }

Tensor Stack(const std::string& name, const std::vector<const Tensor*>& layers, int param_scan_axis) {
  const Tensor& first = *layers[0];
  for (const Tensor* layer : layers) {
    if (layer->shape() != first.shape() || layer->dtype() != first.dtype()) {
      ThrowUsage("{}: its layers differ: {} and {}", name, first.ToString(), layer->ToString());
    }
  }
  const auto count = static_cast<int64_t>(layers.size());
  const int axis = ScanAxisOf(first.shape(), param_scan_axis);
  Tensor stack = Tensor::Empty(StackedShape(first.shape(), count, param_scan_axis), first.dtype());
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= first.dim(i);
  const auto inner = static_cast<size_t>(outer == 0 ? 0 : first.bytes() / outer);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor layer = layers[static_cast<size_t>(i)]->Contiguous();
    for (int64_t o = 0; o < outer && inner > 0; ++o) {
      std::memcpy(stack.MutableRawData() + static_cast<size_t>(o * count + i) * inner,
                  layer.RawData() + static_cast<size_t>(o) * inner, inner);
    }
  }
  return stack;
}

}  // namespace

void RestoreParameters(const Source& source, std::span<ops::Parameter* const> parameters,
                       const RestoreOptions& options) {
  const std::map<std::string, int64_t> lengths = StackLengths(parameters);
  Matcher matcher(source, options);
  std::map<const SourceTensor*, std::vector<std::pair<ops::Parameter*, Origin>>> readers;
  for (ops::Parameter* parameter : parameters) {
    if (parameter->frozen()) ThrowUsage("{}: holds codes of a recipe and cannot take floats", parameter->name);
    const Origin origin = matcher.Match(*parameter, lengths);
    readers[origin.stored].emplace_back(parameter, origin);
  }
  matcher.CheckSuperfluous();
  matcher.ThrowFaults();
  for (const auto& [stored, users] : readers) {
    const Tensor whole = stored->read();
    for (const auto& [parameter, origin] : users) {
      const DType dtype = parameter->tensor().dtype();
      const Tensor one = origin.axis < 0 ? whole.Contiguous() : LayerOf(whole, origin.axis, origin.layer);
      parameter->value = one.dtype() == dtype ? one : ConvertFloats(one, dtype);
    }
  }
}

Source MatchParameters(const Source& source, std::span<ops::Parameter* const> parameters,
                       const RestoreOptions& options) {
  const std::map<std::string, int64_t> lengths = StackLengths(parameters);
  Matcher matcher(source, options);
  Source matched;
  matched.where = source.where;
  for (const ops::Parameter* parameter : parameters) {
    const Origin origin = matcher.Match(*parameter, lengths);
    if (origin.stored == nullptr) continue;
    SourceTensor one = *origin.stored;
    one.shape = parameter->shape();
    if (origin.axis >= 0) {
      one.stack = ScannedNameOf(parameter->name)->name;
      one.read = [stored = *origin.stored, axis = origin.axis, layer = origin.layer] {
        return stored.read_slice ? stored.read_slice(axis, layer) : LayerOf(stored.read(), axis, layer);
      };
      one.read_slice = nullptr;
    }
    matched.tensors.emplace(parameter->name, std::move(one));
  }
  matcher.CheckSuperfluous();
  matcher.ThrowFaults();
  return matched;
}

std::map<std::string, Tensor> ToMaxTextTree(const std::map<std::string, Tensor>& unrolled, bool scanned,
                                            int param_scan_axis, std::string_view collection) {
  std::map<std::string, Tensor> tree;
  std::map<std::string, std::map<int64_t, const Tensor*>> stacks;
  for (const auto& [name, tensor] : unrolled) {
    const auto stacked = scanned ? ScannedNameOf(name) : std::nullopt;
    if (stacked) {
      stacks[stacked->name][stacked->layer] = &tensor;
    } else {
      tree[std::string(collection) + name] = tensor;
    }
  }
  for (const auto& [name, by_layer] : stacks) {
    std::vector<const Tensor*> layers;
    for (const auto& [layer, tensor] : by_layer) {
      if (layer != static_cast<int64_t>(layers.size())) ThrowUsage("{}: layer {} is missing", name, layers.size());
      layers.push_back(tensor);
    }
    tree[std::string(collection) + name] = Stack(name, layers, param_scan_axis);
  }
  return tree;
}

}  // namespace octavo::weights
