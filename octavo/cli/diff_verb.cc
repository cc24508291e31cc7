// octavo diff: two stored models tensor by tensor, whatever files they are in.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/cli/verbs.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/stored_model.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

// One tensor on both sides.
struct Difference {
  std::string name, what;  // "equal", "only in A", "only in B", "shape", "type", "values"
  std::string a, b;        // "bf16[4, 8]"
  double largest = 0;      // of |a - b|
  int64_t differing = 0, elements = 0;
};

struct Side {
  std::string shown;  // "f32[4, 8]", "int8[4, 8] scale f32[1, 8]"
  Shape shape;
  std::function<Tensor()> values;  // any type
  std::optional<weights::StoredCodes> codes;
  std::string digest;  // empty: none is stored
};
using Sides = std::map<std::string, Side>;

// The parameters of any model by our names.
Sides ParametersOf(const weights::StoredModel& model) {
  Sides sides;
  for (const auto& [name, tensor] : model.floats.tensors) {
    Side side{fmt::format("{}{}", NameOf(tensor.dtype), tensor.shape), tensor.shape, tensor.read, {}, ""};
    const auto codes = model.codes.find(name);
    if (codes != model.codes.end()) {
      side.codes = codes->second;
      side.shown = fmt::format("{}{}", Info(codes->second.format).name, codes->second.shape);
    }
    sides.emplace(name, std::move(side));
  }
  return sides;
}

// Equal digests say that tensors are equal only where the data is what its digests say.
std::shared_ptr<const Checkpoint> OpenVerified(const std::filesystem::path& folder) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  checkpoint->Verify();
  return checkpoint;
}

// Everything in an Octavo checkpoint, as it is stored: parameters, optimizer, state.
Sides TensorsOf(const std::shared_ptr<const Checkpoint>& checkpoint) {
  Sides sides;
  for (const auto& [name, tensor] : checkpoint->manifest().tensors) {
    const Shape shape(tensor.shape);
    sides.emplace(name, Side{fmt::format("{}{}", tensor.type, shape),
                             shape,
                             [checkpoint, name = name] { return checkpoint->Load(name); },
                             {},
                             tensor.digest});
  }
  return sides;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.Contiguous(), y = b.Contiguous();
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         std::memcmp(x.RawData(), y.RawData(), static_cast<size_t>(x.bytes())) == 0;
}

bool SameBits(const QArray& a, const QArray& b) {
  return a.format == b.format && SameBits(a.qvalue, b.qvalue) && SameBits(a.scale, b.scale) &&
         a.zero_point.has_value() == b.zero_point.has_value() &&
         (!a.zero_point || SameBits(*a.zero_point, *b.zero_point));
}

std::vector<double> Numbers(const Tensor& tensor) {
  std::vector<double> numbers;
  const auto add = [&](const auto& values) { numbers.assign(values.begin(), values.end()); };
  switch (tensor.dtype()) {
    case DType::kI8:
      add(tensor.ToVector<int8_t>());
      break;
    case DType::kU8:
      add(tensor.ToVector<uint8_t>());
      break;
    case DType::kI32:
      add(tensor.ToVector<int32_t>());
      break;
    case DType::kI64:
      add(tensor.ToVector<int64_t>());
      break;
    case DType::kF64:
      add(tensor.ToVector<double>());
      break;
    default:
      add(weights::ConvertFloats(tensor, DType::kF32).ToVector<float>());
  }
  return numbers;
}

void CompareValues(const Tensor& a, const Tensor& b, Difference& found) {
  const std::vector<double> x = Numbers(a), y = Numbers(b);
  found.elements = static_cast<int64_t>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    if (same) continue;
    ++found.differing;
    const double by = std::abs(x[i] - y[i]);
    found.largest = by <= found.largest ? found.largest : by;  // a NaN is the largest
  }
}

Difference CompareSides(const std::string& name, const Side& a, const Side& b) {
  Difference found{name, "equal", a.shown, b.shown};
  found.elements = a.shape.size();
  if (a.shape != b.shape) {
    found.what = "shape";
    return found;
  }
  if (!a.digest.empty() && a.digest == b.digest && a.shown == b.shown) return found;
  if (a.codes && b.codes && SameBits(a.codes->read(), b.codes->read())) return found;
  const Tensor x = a.values(), y = b.values();
  if (!a.codes && !b.codes && SameBits(x, y)) return found;
  CompareValues(x, y, found);
  found.what = found.differing > 0 ? "values" : a.shown != b.shown ? "type" : "bits";
  return found;
}

void Print(const Difference& one, bool json) {
  if (json) {
    fmt::print("{}\n", Json({{"event", "tensor"},
                             {"name", one.name},
                             {"what", one.what},
                             {"a", one.a},
                             {"b", one.b},
                             {"largest", std::isfinite(one.largest) ? Json(one.largest) : Json("NaN")},
                             {"differing", one.differing},
                             {"elements", one.elements}})
                           .dump());
    return;
  }
  std::string text;
  if (one.what == "values") {
    text = fmt::format("largest difference {:.3g}   {} of {} elements", one.largest, one.differing, one.elements);
  } else if (one.what == "type") {
    text = "equal numbers, other type";
  } else if (one.what == "bits") {
    text = "equal numbers, other bits";
  } else if (one.what == "shape") {
    text = "shapes differ";
  } else {
    text = one.what;
  }
  const std::string sides = one.a == one.b ? one.a : fmt::format("A {}  B {}", one.a, one.b);
  fmt::print("{:<52} {}   {}\n", one.name, sides, text);
}

// Keys of the two configurations that say different things: equal tensors may still be different models.
int64_t PrintConfig(const models::ModelConfig& a, const models::ModelConfig& b, bool json) {
  const Json x = weights::ModelToJson(a), y = weights::ModelToJson(b);
  int64_t count = 0;
  for (const auto& [key, value] : x.items()) {
    if (key == "model_name" || key == "scan_layers" || key == "param_scan_axis" || value == y.value(key, Json()))
      continue;
    ++count;
    const std::string left = value.dump(), right = y.value(key, Json()).dump();
    if (json) {
      fmt::print("{}\n", Json({{"event", "config"}, {"key", key}, {"a", value}, {"b", y.value(key, Json())}}).dump());
    } else {
      fmt::print("config {:<45} A {}  B {}\n", key, left, right);
    }
  }
  return count;
}

struct Totals {
  int64_t equal = 0, only_a = 0, only_b = 0, shapes = 0, values = 0, other = 0, config = 0;
  double largest = 0;
  std::string worst;

  int64_t different() const { return only_a + only_b + shapes + values + other; }
  void Add(const Difference& one) {
    if (one.what == "equal") ++equal;
    if (one.what == "only in A") ++only_a;
    if (one.what == "only in B") ++only_b;
    if (one.what == "shape") ++shapes;
    if (one.what == "type" || one.what == "bits") ++other;
    if (one.what != "values") return;
    ++values;
    if (worst.empty() || !(one.largest <= largest)) largest = one.largest, worst = one.name;
  }
};

int PrintTotals(const Totals& totals, bool json) {
  const int64_t all = totals.equal + totals.different();
  const bool same = totals.different() == 0 && totals.config == 0;
  if (json) {
    fmt::print("{}\n", Json({{"event", "diff"},
                             {"equal", same},
                             {"tensors", all},
                             {"equal_tensors", totals.equal},
                             {"only_a", totals.only_a},
                             {"only_b", totals.only_b},
                             {"shapes", totals.shapes},
                             {"values", totals.values},
                             {"types", totals.other},
                             {"config_keys", totals.config},
                             {"largest", std::isfinite(totals.largest) ? Json(totals.largest) : Json("NaN")},
                             {"largest_at", totals.worst}})
                           .dump());
  } else if (same) {
    fmt::print("equal      {} of {} tensors, bit for bit\n", totals.equal, all);
  } else {
    fmt::print(
        "different  {} of {} tensors   only in A {}   only in B {}   shapes {}   values {}   types {}   config keys "
        "{}\n",
        totals.different(), all, totals.only_a, totals.only_b, totals.shapes, totals.values, totals.other,
        totals.config);
    if (!totals.worst.empty()) fmt::print("largest    {:.6g} in {}\n", totals.largest, totals.worst);
  }
  return same ? 0 : static_cast<int>(ErrorCode::kCheck);
}

int Run(const Args& args) {
  const bool json = args.Switch("json"), all = args.Switch("all");
  const std::string &path_a = args.positionals()[0], &path_b = args.positionals()[1];
  Sides a, b;
  Totals totals;
  const weights::StoredModel model_a = weights::OpenStored(path_a), model_b = weights::OpenStored(path_b);
  if (model_a.kind == model_b.kind && weights::IsOctavo(model_a.kind)) {
    a = TensorsOf(OpenVerified(model_a.path));
    b = TensorsOf(OpenVerified(model_b.path));
  } else {
    a = ParametersOf(model_a);
    b = ParametersOf(model_b);
  }
  totals.config = PrintConfig(model_a.config, model_b.config, json);
  const auto take = [&](const Difference& one) {
    totals.Add(one);
    if (all || one.what != "equal") Print(one, json);
  };
  for (const auto& [name, side] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      take({name, "only in A", side.shown, "", 0, 0, side.shape.size()});
    } else {
      take(CompareSides(name, side, other->second));
    }
  }
  for (const auto& [name, side] : b) {
    if (!a.contains(name)) take({name, "only in B", "", side.shown, 0, 0, side.shape.size()});
  }
  return PrintTotals(totals, json);
}

}  // namespace

VerbSpec DiffVerb() {
  return {
      .name = "diff",
      .synopsis = "A B [--all]",
      .summary = "two stored models tensor by tensor: missing, shapes, equal bits, largest difference",
      .details =
          "A and B may be checkpoints, model folders, GGUF or llama2.c files, in any combination: tensors are "
          "compared\n"
          "under Octavo's names and layout. Two checkpoints of one kind are compared whole, with optimizer and recipe\n"
          "state. The exit code is 0 when everything is equal bit for bit, 3 when anything differs, 5 when data is "
          "damaged.\n"
          "  octavo diff out/x/checkpoints/10 out/x/checkpoints/20\n"
          "  octavo diff llama-folder llama.gguf --json",
      .least_positionals = 2,
      .most_positionals = 2,
      .options = {{"all", "", "equal tensors too"}},
      .run = Run};
}

}  // namespace octavo
