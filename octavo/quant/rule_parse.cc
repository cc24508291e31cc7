// Rules from YAML.
#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/quant/kv_quant.h"
#include "octavo/quant/rule.h"

namespace octavo::quant {
namespace {

// A scalar of the rules with $names replaced by options. "" and None are absent.
class Value {
 public:
  Value(const Yaml& yaml, std::string_view key, const Options& options) : yaml_(yaml), key_(key) {
    if (yaml.is_null()) return;
    text_ = yaml.Text(key);
    for (size_t dollar; (dollar = text_.find('$')) != std::string::npos;) {
      size_t end = dollar + 1;
      while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
        ++end;
      const std::string name = text_.substr(dollar + 1, end - dollar - 1);
      const auto at = std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.first == name; });
      if (at == options.end()) ThrowUsage("{}: {}: no option '{}' here", yaml.Where(), key, name);
      text_.replace(dollar, end - dollar, at->second);
    }
    if (text_ == "None" || text_ == "null") text_.clear();
  }

  bool absent() const { return text_.empty(); }
  const std::string& text() const { return text_; }

  [[noreturn]] void Fail(std::string_view expected) const {
    ThrowUsage("{}: {}: expected {}, found '{}'", yaml_.Where(), key_, expected, text_);
  }
  int64_t Int(int64_t least) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || end != text_.data() + text_.size() || value < least) {
      Fail(fmt::format("a whole number of at least {}", least));
    }
    return value;
  }
  double Number() const {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || end != text_.data() + text_.size()) Fail("a number");
    return value;
  }
  bool Bool() const {
    if (text_ == "true" || text_ == "True") return true;
    if (text_ == "false" || text_ == "False" || text_.empty()) return false;
    Fail("true or false");
  }
  std::optional<Format> Quantized() const {
    if (absent()) return std::nullopt;
    return WithPlace([&] { return FormatByName(text_); });
  }
  // A whole number of elements, a fraction of the axis, or 1/N: N tiles.
  std::optional<TileSize> Tile() const {
    if (absent()) return std::nullopt;
    if (text_.starts_with("1/")) {
      double count = 0;
      const auto [end, error] = std::from_chars(text_.data() + 2, text_.data() + text_.size(), count);
      if (error != std::errc() || end != text_.data() + text_.size() || !(count >= 1)) Fail("1/N with N of at least 1");
      return 1.0 / count;
    }
    if (text_.find_first_of(".eE") == std::string::npos) return Int(1);
    const double fraction = Number();
    if (!(fraction > 0 && fraction <= 1)) Fail("a fraction between 0 and 1, or whole elements");
    return fraction;
  }
  Calibration Method() const {
    if (absent()) return {};
    return WithPlace([&] { return ParseCalibration(text_); });
  }
  Rounding Noise() const {
    return WithPlace([&] { return ParseRounding(text_); });
  }

 private:
  // Puts file and line in front of the text of an error that knows neither.
  template <typename F>
  std::invoke_result_t<F> WithPlace(F f) const {
    try {
      return f();
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}: {}", yaml_.Where(), key_, error.message()), error.hint());
    }
  }

  const Yaml& yaml_;
  std::string key_;
  std::string text_;
};

// One key of a map and what to do with its value.
struct Key {
  std::string_view name;
  std::function<void(const Value&)> set;
};

// Calls the setter of each field; an unknown field is an error with the nearest names. `other` takes non-scalars first.
void ReadMap(const Yaml& map, std::string_view what, std::span<const Key> keys, const Options& options,
             const std::function<bool(const std::string&, const Yaml&)>& other = nullptr) {
  if (map.kind() != Yaml::Kind::kMap) ThrowUsage("{}: expected {} as a map", map.Where(), what);
  for (const auto& [name, value] : map.fields()) {
    if (other && other(name, value)) continue;
    const std::string_view wanted = name;
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == wanted; });
    if (key == keys.end()) {
      std::vector<std::string_view> known;
      for (const Key& k : keys) known.push_back(k.name);
      throw Error(ErrorCode::kUsage, fmt::format("{}: unknown key '{}' in {}", value.Where(), name, what),
                  fmt::format("did you mean '{}'?", fmt::join(NearestNames(name, known, 3), "', '")));
    }
    key->set(Value(value, name, options));
  }
}

std::vector<int> ReadAxes(const Yaml& list, std::string_view key) {
  std::vector<int> axes;
  if (list.kind() != Yaml::Kind::kList) ThrowUsage("{}: {}: expected a list of axes", list.Where(), key);
  for (const Yaml& item : list.items()) axes.push_back(static_cast<int>(item.Int(key)));
  return axes;
}

std::vector<ops::OpKind> ReadOps(const Yaml& list) {
  std::vector<ops::OpKind> result;
  const std::vector<Yaml> one = {list};
  for (const Yaml& item : list.kind() == Yaml::Kind::kList ? list.items() : one) {
    const std::string name = item.Text("op_names");
    const std::optional<ops::OpKind> op = ops::OpKindByName(name);
    if (!op) {
      ThrowUsage(
          "{}: op_names: unknown op '{}'; known: dot_general einsum ragged_dot gmm conv_general_dilated attention "
          "kv_cache",
          item.Where(), name);
    }
    result.push_back(*op);
  }
  return result;
}

std::vector<Key> QwixKeys(QwixTreatment& q) {
  return {
      {"weight_qtype", [&](const Value& v) { q.weight = v.Quantized(); }},
      {"act_qtype", [&](const Value& v) { q.activation = v.Quantized(); }},
      {"bwd_qtype", [&](const Value& v) { q.gradient = v.Quantized(); }},
      {"weight_calibration_method", [&](const Value& v) { q.weight_calibration = v.Method(); }},
      {"act_calibration_method", [&](const Value& v) { q.activation_calibration = v.Method(); }},
      {"bwd_calibration_method", [&](const Value& v) { q.gradient_calibration = v.Method(); }},
      {"tile_size", [&](const Value& v) { q.tile = v.Tile(); }},
      {"bwd_weight_grad_tile_size", [&](const Value& v) { q.weight_gradient_tile = v.Tile(); }},
      {"disable_channelwise_axes", [&](const Value& v) { q.per_tensor = v.Bool(); }},
      {"act_static_scale", [&](const Value& v) { q.static_activation = v.Bool(); }},
      {"bwd_stochastic_rounding", [&](const Value& v) { q.gradient_rounding = v.Noise(); }},
      {"use_original_residuals",
       [&](const Value& v) { q.original_residuals = v.absent() ? std::nullopt : std::optional(v.Bool()); }},
      {"disable_gradient_clipping", [&](const Value& v) { q.mask_gradient = !v.Bool(); }},
      {"weight_sparsity_n", [&](const Value& v) { q.sparsity_n = v.absent() ? 0 : static_cast<int>(v.Int(0)); }},
      {"weight_sparsity_m", [&](const Value& v) { q.sparsity_m = v.absent() ? 0 : static_cast<int>(v.Int(0)); }},
      {"weight_sparsity_start_step", [&](const Value& v) { q.sparsity_start = static_cast<int>(v.Int(0)); }},
      {"weight_sparsity_update_step", [&](const Value& v) { q.sparsity_update = static_cast<int>(v.Int(1)); }},
  };
}

// Six comma-separated bounds; empty: none. Any other count is an error (upstream ignores it silently).
std::array<std::optional<double>, 6> ReadBounds(const Value& value) {
  std::array<std::optional<double>, 6> bounds;
  if (value.absent()) return bounds;
  std::vector<double> numbers;
  const std::string& text = value.text();
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    std::string word = text.substr(start, end - start);
    std::erase(word, ' ');
    double number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || stop != word.data() + word.size() || !(number > 0)) value.Fail("six positive numbers");
    numbers.push_back(number);
    start = end + 1;
  }
  if (numbers.size() != 6) value.Fail("six numbers: forward lhs, rhs; grad_lhs lhs, rhs; grad_rhs lhs, rhs");
  std::copy(numbers.begin(), numbers.end(), bounds.begin());
  return bounds;
}

AqtTreatment ReadAqt(const Yaml& map, const Options& options) {
  AqtTreatment a;
  const std::vector<Key> keys = {
      {"activation", [&](const Value& v) { a.activation = v.Quantized(); }},
      {"weight", [&](const Value& v) { a.weight = v.Quantized(); }},
      {"grad_lhs", [&](const Value& v) { a.grad_lhs = v.Quantized(); }},
      {"grad_rhs", [&](const Value& v) { a.grad_rhs = v.Quantized(); }},
      {"bf16_products", [&](const Value& v) { a.bf16_products = v.Bool(); }},
      {"forward_codes", [&](const Value& v) { a.forward_codes = v.Bool(); }},
      {"gradient_rounding", [&](const Value& v) { a.gradient_rounding = v.Noise(); }},
      {"weight_gradient_shards", [&](const Value& v) { a.weight_gradient_shards = v.Int(0); }},
      {"per_tensor", [&](const Value& v) { a.per_tensor = v.Bool(); }},
      {"constant_bounds", [&](const Value& v) { a.constant_bounds = ReadBounds(v); }},
      {"activation_clip", [&](const Value& v) { a.activation_clip = v.Number(); }},
      {"weight_clip", [&](const Value& v) { a.weight_clip = v.Number(); }},
      {"tile", [&](const Value& v) { a.tile = v.Int(0); }},
  };
  ReadMap(map, "aqt", keys, options);
  if (a.weight_gradient_shards == 0) a.grad_rhs.reset();  // quantization_local_shard_count=0: a float weight gradient
  return a;
}

DelayedTreatment ReadDelayed(const Yaml& map, const Options& options) {
  DelayedTreatment d;
  const std::vector<Key> keys = {
      {"form",
       [&](const Value& v) {
         if (v.text() == "direct") {
           d.form = DelayedTreatment::Form::kDirect;
         } else if (v.text() == "decoded") {
           d.form = DelayedTreatment::Form::kDecoded;
         } else if (v.text() == "transformer_engine") {
           d.form = DelayedTreatment::Form::kTransformerEngine;
         } else {
           v.Fail("direct, decoded or transformer_engine");
         }
       }},
      {"forward", [&](const Value& v) { d.forward = v.Quantized().value_or(d.forward); }},
      {"gradient", [&](const Value& v) { d.gradient = v.Quantized().value_or(d.gradient); }},
      {"history", [&](const Value& v) { d.history = static_cast<int>(v.Int(2)); }},
  };
  ReadMap(map, "delayed", keys, options);
  return d;
}

BlockTreatment ReadBlock(const Yaml& map, const Options& options) {
  BlockTreatment b;
  const std::vector<Key> keys = {
      {"form",
       [&](const Value& v) {
         if (v.text() == "current_scaling") {
           b.form = BlockTreatment::Form::kCurrentScaling;
         } else if (v.text() == "mxfp8") {
           b.form = BlockTreatment::Form::kMxfp8;
         } else if (v.text() == "nvfp4") {
           b.form = BlockTreatment::Form::kNvfp4;
         } else {
           v.Fail("current_scaling, mxfp8 or nvfp4");
         }
       }},
      {"hadamard", [&](const Value& v) { b.hadamard = v.Bool(); }},
  };
  ReadMap(map, "block", keys, options);
  return b;
}

GroupedTreatment ReadGrouped(const Yaml& map, const Options& options) {
  GroupedTreatment g;
  const std::vector<Key> keys = {
      {"weight", [&](const Value& v) { g.weight = v.Quantized().value_or(g.weight); }},
      {"activation", [&](const Value& v) { g.activation = v.Quantized().value_or(g.activation); }},
      {"group", [&](const Value& v) { g.group = v.Int(0); }},
  };
  ReadMap(map, "grouped", keys, options);
  return g;
}

KvTreatment ReadKvCache(const Yaml& map, const Options& options) {
  KvTreatment kv{{Format::kInt8, false}};
  const std::vector<Key> keys = {
      {"format", [&](const Value& v) { kv.format.format = ParseKvFormat(v.text()); }},
      {"axes", [&](const Value& v) { kv.format.scale_per_head = ParseKvAxes(v.text()) == KvAxes::kDkv; }},
  };
  ReadMap(map, "kv_cache", keys, options);
  return kv;
}

Rule ReadRule(const Yaml& map, const Options& options) {
  Rule rule;
  rule.where = map.Where();
  QwixTreatment qwix;
  std::optional<Treatment> other;
  std::vector<Key> keys = QwixKeys(qwix);
  keys.push_back({"module_path", [&](const Value& v) { rule.module_path = v.text(); }});
  keys.push_back({"only_weights", [&](const Value& v) { rule.only_weights = v.Bool(); }});
  for (std::string_view name :
       {"op_names", "act_batch_axes", "channelwise_noise_axes", "aqt", "delayed", "block", "grouped", "kv_cache"}) {
    keys.push_back({name, [](const Value& v) { v.Fail("a list or map"); }});
  }
  bool has_qwix = false;
  ReadMap(map, "a rule", keys, options, [&](const std::string& name, const Yaml& value) {
    const auto family = [&](Treatment treatment) {
      if (other) ThrowUsage("{}: a rule has one of aqt, delayed, block, grouped", value.Where());
      other = std::move(treatment);
      return true;
    };
    if (name == "op_names") return rule.ops = ReadOps(value), true;
    if (name == "act_batch_axes") return qwix.activation_batch_axes = ReadAxes(value, name), true;
    if (name == "channelwise_noise_axes") return qwix.noise_axes = ReadAxes(value, name), true;
    if (name == "aqt") return family(ReadAqt(value, options));
    if (name == "delayed") return family(ReadDelayed(value, options));
    if (name == "block") return family(ReadBlock(value, options));
    if (name == "grouped") return family(ReadGrouped(value, options));
    if (name == "kv_cache") return rule.kv = ReadKvCache(value, options), true;
    has_qwix = has_qwix || (name != "module_path" && name != "only_weights");
    return false;
  });
  if (other && has_qwix) ThrowUsage("{}: a rule cannot mix Qwix keys with aqt, delayed, block or grouped", rule.where);
  if (rule.kv && (other || has_qwix)) {
    ThrowUsage("{}: a rule about caches (kv_cache) says nothing about dots", rule.where);
  }
  if (other) {
    rule.treatment = std::move(other);
  } else if (qwix.weight) {  // a rule without weight_qtype leaves the op alone, whatever else it says
    if (qwix.static_activation && !qwix.activation) {
      ThrowUsage("{}: act_static_scale needs act_qtype", rule.where);
    }
    if ((qwix.sparsity_n > 0) != (qwix.sparsity_m > 0) || qwix.sparsity_n > qwix.sparsity_m) {
      ThrowUsage("{}: sparsity {}:{}: expected n:m with 0 < n <= m", rule.where, qwix.sparsity_n, qwix.sparsity_m);
    }
    rule.treatment = std::move(qwix);
  }
  return rule;
}

}  // namespace

std::vector<Rule> ParseRules(const Yaml& list, const Options& options) {
  if (list.kind() != Yaml::Kind::kList) ThrowUsage("{}: expected a list of rules", list.Where());
  std::vector<Rule> rules;
  for (const Yaml& item : list.items()) rules.push_back(ReadRule(item, options));
  return rules;
}

}  // namespace octavo::quant
