#include "octavo/cli/golden_case.h"

#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// References from case to case ("as X with …") may not go round in circles.
constexpr int kMostReferences = 8;

Json ReadIndex(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  Json json = ParseStrictJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
  if (!json.is_object()) ThrowFile("{}: expected a JSON object", path.string());
  return json;
}

const Json& FieldOf(const Json& object, std::string_view key) {
  static const Json null;  // constant
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

}  // namespace

std::optional<std::string> Between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  const size_t end = text.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(0, end));
}

Tensor CopyOf(const StoredTensor& stored) {
  const Shape shape = stored.packed ? Shape({static_cast<int64_t>(stored.bytes.size())}) : Shape(stored.shape);
  Tensor tensor = Tensor::Empty(shape, stored.dtype);
  if (!stored.bytes.empty()) std::memcpy(tensor.MutableRawData(), stored.bytes.data(), stored.bytes.size());
  return tensor;
}

GoldenCase::GoldenCase(const GoldenGroup& group, Json json, std::string name)
    : group_(&group), json_(std::move(json)), name_(std::move(name)) {
  inputs_ = ReadNames("inputs");
  outputs_ = ReadNames("outputs");
}

std::map<std::string, std::string> GoldenCase::ReadNames(const char* key) const {
  std::map<std::string, std::string> names;
  const Json& field = Field(key);
  if (field.is_null()) return names;
  const std::string where = fmt::format("{}: case '{}'", group_->path().string(), name_);
  if (!field.is_object()) ThrowFile("{}: {} is not an object", where, key);
  for (const auto& [argument, tensor] : field.items()) {
    if (!tensor.is_string()) ThrowFile("{}: {} '{}' is not the name of a tensor", where, key, argument);
    const std::string& tensor_name = tensor.get_ref<const std::string&>();
    if (group_->tensors() == nullptr || group_->tensors()->Find(tensor_name) == nullptr) {
      ThrowFile("{}: {} '{}' is tensor '{}', which the safetensors file does not have", where, key, argument,
                tensor_name);
    }
    names[argument] = tensor_name;
  }
  return names;
}

std::string_view GoldenCase::call() const {
  const GoldenCase* at = this;
  for (int i = 0; i < kMostReferences; ++i) {
    const Json& field = at->Field("call");
    if (!field.is_string()) return "";
    const std::string& text = field.get_ref<const std::string&>();
    if (!text.starts_with("as ")) return text;
    const std::optional<std::string> other = Between(text, "as ", " with ");
    const GoldenCase* next = other ? group_->Find(*other) : nullptr;
    if (next == nullptr) return text;
    at = next;
  }
  return "";
}

const Json& GoldenCase::Field(std::string_view key) const { return FieldOf(json_, key); }

const Json& GoldenCase::Arg(std::string_view key) const { return FieldOf(Field("args"), key); }

std::optional<std::string> GoldenCase::error() const {
  const Json& field = Field("error");
  if (!field.is_string()) return std::nullopt;
  return field.get<std::string>();
}

const StoredTensor& GoldenCase::Stored(const std::map<std::string, std::string>& names, const char* kind,
                                       const std::string& name) const {
  const auto found = names.find(name);
  if (found == names.end()) {
    ThrowFile("{}: case '{}' has no {} '{}'", group_->path().string(), name_, kind, name);
  }
  return group_->tensors()->At(found->second);
}

const StoredTensor& GoldenCase::StoredInput(const std::string& name) const { return Stored(inputs_, "input", name); }
const StoredTensor& GoldenCase::StoredOutput(const std::string& name) const { return Stored(outputs_, "output", name); }
Tensor GoldenCase::Input(const std::string& name) const { return CopyOf(StoredInput(name)); }
Tensor GoldenCase::Output(const std::string& name) const { return CopyOf(StoredOutput(name)); }

std::optional<Format> GoldenCase::OutputFormat(const std::string& name) const {
  const StoredTensor& stored = StoredOutput(name);
  if (stored.format) return stored.format;
  const Json& note = FieldOf(Field("dtype_notes"), stored.name);
  if (!note.is_string()) return std::nullopt;
  const std::string& text = note.get_ref<const std::string&>();
  const size_t end = text.find(" bit codes held as ");
  return end == std::string::npos ? std::nullopt : FindFormat(std::string_view(text).substr(0, end));
}

GoldenGroup::GoldenGroup(const std::filesystem::path& index_path) : path_(index_path), header_(ReadIndex(path_)) {
  name_ = path_.stem().string();
  std::filesystem::path tensors_path = path_;
  tensors_path.replace_extension(".safetensors");
  if (std::filesystem::exists(tensors_path)) tensors_.emplace(tensors_path);
  const auto cases = header_.find("cases");
  if (cases == header_.end() || !cases->is_array()) {
    cases_.push_back(GoldenCase(*this, header_, name_));
    return;
  }
  for (const Json& one : *cases) {
    const Json& name = one.is_object() ? FieldOf(one, "name") : one;
    if (!one.is_object() || !name.is_string()) {
      ThrowFile("{}: case number {} is not an object with a name", path_.string(), cases_.size());
    }
    if (Find(name.get<std::string>()) != nullptr) {
      ThrowFile("{}: two cases are named '{}'", path_.string(), name.get<std::string>());
    }
    cases_.push_back(GoldenCase(*this, one, name.get<std::string>()));
  }
  if (const Json& count = FieldOf(header_, "n_cases"); count.is_number() && count != cases_.size()) {
    ThrowFile("{}: the index promises {} cases and has {}", path_.string(), count.get<int64_t>(), cases_.size());
  }
  header_.erase("cases");
}

const GoldenCase* GoldenGroup::Find(std::string_view name) const {
  for (const GoldenCase& one : cases_) {
    if (one.name() == name) return &one;
  }
  return nullptr;
}

}  // namespace octavo
