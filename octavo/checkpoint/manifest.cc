#include "octavo/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kDigestBegin = "{\"digest\":\"";
constexpr std::string_view kDigestEnd = "\",\n";
constexpr size_t kDigestSize = 32;

std::string DigestOf(std::string_view text) { return DigestHex(std::as_bytes(std::span(text))); }

std::string Dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// One entry of an object, on a line of its own.
std::string Line(const std::string& name, const Json& value) {
  return fmt::format("\n  {}: {}", Dump(name), Dump(value));
}

// Strict access to one object of the manifest.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) ThrowFile("{}: not an object", where_);
  }

  const Json& At(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) ThrowFile("{}: no field '{}'", where_, key);
    return *found;
  }
  std::string Text(const char* key) const {
    const Json& value = At(key);
    if (!value.is_string()) ThrowFile("{}: '{}' is not a string", where_, key);
    return value.get<std::string>();
  }
  int64_t Number(const char* key) const { return Number(At(key), key); }
  int64_t Number(const Json& value, const char* what) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
      ThrowFile("{}: '{}' is not a whole number from 0", where_, what);
    }
    return value.get<int64_t>();
  }
  std::string Digest(const char* key) const {
    const std::string digest = Text(key);
    if (digest.size() != kDigestSize || digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
      ThrowFile("{}: '{}' is not a digest", where_, key);
    }
    return digest;
  }
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
};

// A name in the same folder: nothing that leads elsewhere.
void CheckFileName(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!plain) ThrowFile("{}: '{}' is not the name of a file beside it", where, name);
}

ManifestTensor ReadTensor(const Json& value, const std::string& where) {
  const Fields fields(value, where);
  ManifestTensor tensor{fields.Text("file"), fields.Text("dtype"), {}, fields.Digest("digest")};
  const Json& shape = fields.At("shape");
  if (!shape.is_array()) ThrowFile("{}: 'shape' is not a list", where);
  for (const Json& axis : shape) tensor.shape.push_back(fields.Number(axis, "shape"));
  return tensor;
}

std::vector<int64_t> ReadSizes(const Fields& fields, const char* key) {
  const Json& list = fields.At(key);
  if (!list.is_array()) ThrowFile("{}: '{}' is not a list", fields.where(), key);
  std::vector<int64_t> sizes;
  for (const Json& size : list) sizes.push_back(fields.Number(size, key));
  return sizes;
}

ManifestQuantized ReadQuantized(const Json& value, const std::string& where) {
  const Fields fields(value, where);
  ManifestQuantized quantized;
  quantized.format = fields.Text("format");
  quantized.shape = ReadSizes(fields, "shape");
  quantized.tile = ReadSizes(fields, "tile");
  const Json &sqnr = fields.At("sqnr_db"), &largest = fields.At("largest_error");
  if (!sqnr.is_number() || !largest.is_number()) ThrowFile("{}: its errors are not numbers", where);
  quantized.sqnr_db = sqnr.get<double>();
  quantized.largest_error = largest.get<double>();
  return quantized;
}

// What converted checkpoints hold besides. Each codes tensor must be there with its scale.
void ReadConverted(const Fields& fields, const Json& json, Manifest& manifest) {
  const std::string& where = fields.where();
  if (json.contains("model")) {
    if (!json["model"].is_object()) ThrowFile("{}: 'model' is not an object", where);
    manifest.model = Dump(json["model"]);
  }
  if (json.contains("plan")) manifest.plan = fields.Text("plan");
  if (json.contains("recipe_choice")) {
    const Fields choice(json["recipe_choice"], where + ": recipe_choice");
    manifest.recipe_name = choice.Text("name");
    manifest.recipe_mixed = choice.Text("mixed_precision");
    const Fields options(choice.At("options"), where + ": recipe_choice: options");
    for (const auto& item : choice.At("options").items()) {
      manifest.recipe_options.emplace_back(item.key(), options.Text(item.key().c_str()));
    }
  }
  if (json.contains("source")) {
    const Fields source(json["source"], where + ": source");
    manifest.source_name = source.Text("name");
    manifest.source_kind = source.Text("kind");
    manifest.source_digest = source.Digest("digest");
  }
  if (json.contains("carried")) {
    const Fields carried(json["carried"], where + ": carried");
    for (const auto& item : json["carried"].items()) {
      CheckFileName(item.key(), where);
      const Fields file(item.value(), fmt::format("{}: carried '{}'", where, item.key()));
      manifest.carried[item.key()] = {static_cast<uint64_t>(file.Number("bytes")), file.Digest("digest")};
    }
  }
  if (!json.contains("quantized")) return;
  const Fields quantized(json["quantized"], where + ": quantized");
  for (const auto& item : json["quantized"].items()) {
    const std::string& name = item.key();
    for (const char* part : {".codes", ".scale"}) {
      if (!manifest.tensors.contains(name + part)) ThrowFile("{}: '{}' has no tensor '{}{}'", where, name, name, part);
    }
    manifest.quantized[name] = ReadQuantized(item.value(), fmt::format("{}: quantized '{}'", where, name));
  }
}

// The body after the line with the digest, once the digest is known to be right.
std::string_view CheckedBody(std::string_view text, const std::string& where) {
  const size_t first_line = kDigestBegin.size() + kDigestSize + kDigestEnd.size();
  if (text.size() < first_line || !text.starts_with(kDigestBegin) ||
      text.substr(first_line - kDigestEnd.size(), kDigestEnd.size()) != kDigestEnd) {
    throw Error(ErrorCode::kFile, fmt::format("{}: not a manifest of a checkpoint", where),
                "its first line holds its digest; the file is damaged or of another program");
  }
  const std::string_view written = text.substr(kDigestBegin.size(), kDigestSize);
  const std::string found = DigestOf(text.substr(first_line));
  if (written != found) {
    ThrowFile("{}: the text does not match its checksum; written {}, read {}", where, written, found);
  }
  return text.substr(first_line);
}

}  // namespace

std::string Manifest::Bits(std::string_view prefix) const {
  std::string all;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(prefix)) continue;
    all += fmt::format("{}\n{}\n{}\n{}\n", name, tensor.type, fmt::join(tensor.shape, ","), tensor.digest);
  }
  for (const auto& [name, codes] : quantized) {
    if (!name.starts_with(prefix)) continue;
    all += fmt::format("{}\n{}\n{}\n{}\n", name, codes.format, fmt::join(codes.shape, ","), fmt::join(codes.tile, ","));
  }
  return DigestOf(all);
}

std::string ManifestText(const Manifest& manifest) {
  std::string rest;
  const auto field = [&rest](const char* key, const Json& value) {
    rest += fmt::format(" \"{}\": {},\n", key, Dump(value));
  };
  field("format", "octavo-checkpoint");
  field("version", manifest.quantized.empty() ? 1 : 2);
  field("kind", manifest.kind);
  field("step", manifest.step);
  field("producer", manifest.producer);
  field("bits", manifest.Bits());
  field("config", manifest.config);
  field("recipe", manifest.recipe);
  field("data", manifest.data_state);
  if (!manifest.model.empty()) rest += fmt::format(" \"model\": {},\n", manifest.model);
  if (!manifest.plan.empty()) field("plan", manifest.plan);
  if (!manifest.recipe_name.empty()) {
    Json options = Json::object();
    for (const auto& [name, value] : manifest.recipe_options) options[name] = value;
    field("recipe_choice",
          {{"name", manifest.recipe_name}, {"options", options}, {"mixed_precision", manifest.recipe_mixed}});
  }
  if (!manifest.source_digest.empty()) {
    field("source",
          {{"name", manifest.source_name}, {"kind", manifest.source_kind}, {"digest", manifest.source_digest}});
  }
  std::vector<std::string> carried, quantized, files, tensors;
  for (const auto& [name, file] : manifest.carried) {
    carried.push_back(Line(name, {{"bytes", file.bytes}, {"digest", file.digest}}));
  }
  for (const auto& [name, codes] : manifest.quantized) {
    quantized.push_back(Line(name, {{"format", codes.format},
                                    {"shape", codes.shape},
                                    {"tile", codes.tile},
                                    {"sqnr_db", codes.sqnr_db},
                                    {"largest_error", codes.largest_error}}));
  }
  if (!carried.empty()) rest += fmt::format(" \"carried\": {{{}}},\n", fmt::join(carried, ","));
  if (!quantized.empty()) rest += fmt::format(" \"quantized\": {{{}}},\n", fmt::join(quantized, ","));
  for (const auto& [name, file] : manifest.files) {
    files.push_back(Line(name, {{"bytes", file.bytes}, {"header_digest", file.header_digest}}));
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.push_back(Line(
        name, {{"file", tensor.file}, {"dtype", tensor.type}, {"shape", tensor.shape}, {"digest", tensor.digest}}));
  }
  rest += fmt::format(" \"files\": {{{}}},\n \"tensors\": {{{}}}}}\n", fmt::join(files, ","), fmt::join(tensors, ","));
  return fmt::format("{}{}{}{}", kDigestBegin, DigestOf(rest), kDigestEnd, rest);
}

Manifest ParseManifest(std::string_view text, const std::string& where) {
  CheckedBody(text, where);
  const Json json = ParseStrictJson(text, where, {.depth = 8});
  const Fields fields(json, where);
  if (fields.Text("format") != "octavo-checkpoint") ThrowFile("{}: format '{}'", where, fields.Text("format"));
  const int64_t version = fields.Number("version");
  if (version > kManifestVersion || version < 1) {
    throw Error(ErrorCode::kFile, fmt::format("{}: version {} of the format", where, version),
                fmt::format("this program reads versions 1 to {}; use a newer one", kManifestVersion));
  }
  Manifest manifest;
  manifest.kind = fields.Text("kind");
  manifest.step = fields.Number("step");
  manifest.producer = fields.Text("producer");
  manifest.config = fields.Text("config");
  manifest.recipe = fields.Text("recipe");
  manifest.data_state = fields.Text("data");
  const Fields files(fields.At("files"), where + ": files"), tensors(fields.At("tensors"), where + ": tensors");
  for (const auto& [name, value] : fields.At("files").items()) {
    CheckFileName(name, where);
    const Fields file(value, fmt::format("{}: file '{}'", where, name));
    manifest.files[name] = {static_cast<uint64_t>(file.Number("bytes")), file.Digest("header_digest")};
  }
  for (const auto& [name, value] : fields.At("tensors").items()) {
    ManifestTensor tensor = ReadTensor(value, fmt::format("{}: tensor '{}'", where, name));
    if (!manifest.files.contains(tensor.file)) {
      ThrowFile("{}: tensor '{}' is in '{}', which is not listed", where, name, tensor.file);
    }
    manifest.tensors[name] = std::move(tensor);
  }
  ReadConverted(fields, json, manifest);
  if (fields.Digest("bits") != manifest.Bits()) ThrowFile("{}: 'bits' is not the digest of its tensors", where);
  return manifest;
}

}  // namespace octavo
