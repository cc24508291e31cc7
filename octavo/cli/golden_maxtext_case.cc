// A case as it lies on disk, its settings and its recipe.
#include <fstream>
#include <map>

#include "octavo/base/error.h"
#include "octavo/cli/golden_maxtext.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json ReadJson(const fs::path& path) {
  std::ifstream file(path);
  if (!file) ThrowFile("{}: cannot be read", path.string());
  const Json json = Json::parse(file, nullptr, false);
  if (json.is_discarded()) ThrowFile("{}: is not JSON", path.string());
  return json;
}

// As a user would write it behind "key=".
std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

// Switches off the noise of the incoming gradient.
void RoundGradientsToNearest(std::vector<quant::Rule>& rules) {
  for (quant::Rule& rule : rules) {
    if (!rule.treatment) continue;
    if (auto* aqt = std::get_if<quant::AqtTreatment>(&*rule.treatment)) {
      aqt->gradient_rounding = quant::Rounding::kNearest;
    }
  }
}

bool RandomGradient(const std::vector<quant::Rule>& rules) {
  for (const quant::Rule& rule : rules) {
    if (!rule.treatment) continue;
    const auto* aqt = std::get_if<quant::AqtTreatment>(&*rule.treatment);
    const auto* qwix = std::get_if<quant::QwixTreatment>(&*rule.treatment);
    if (aqt != nullptr && aqt->gradient_rounding != quant::Rounding::kNearest) return true;
    if (qwix != nullptr && qwix->gradient_rounding != quant::Rounding::kNearest) return true;
  }
  return false;
}

// The recipe's own options, as the settings have them.
quant::Options OptionsOf(const quant::Recipe& recipe, const Settings& settings) {
  quant::Options options;
  for (const auto& [name, fallback] : recipe.options) {
    if (settings.table().Find(name) == nullptr || settings.IsNull(name)) continue;
    if (settings.table().Find(name)->type == KeyType::kList || settings.table().Find(name)->type == KeyType::kAny) {
      std::string text;
      for (const std::string& item : settings.List(name)) text += (text.empty() ? "" : ",") + item;
      options.emplace_back(name, text);
    } else {
      options.emplace_back(name, settings.Text(name));
    }
  }
  return options;
}

// The text of quant_cfg_path, whose beginning the recordings write as <path>.
std::string MixedPrecision(const Settings& settings, const fs::path& folder) {
  std::string path = settings.Text("quant_cfg_path");
  if (path.empty()) return "";
  if (path.starts_with("<path>/")) path = (folder / path.substr(7)).string();
  return ReadJson(path).dump();
}

}  // namespace

Tensor MaxTextCase::Read(const std::string& tensor) const {
  const auto found = tensors.tensors.find(tensor);
  if (found == tensors.tensors.end()) ThrowFile("{}: holds no '{}'", tensors.where, tensor);
  return found->second.read();
}

std::vector<std::string> MaxTextCase::forced() const {
  const auto found = json.find("forced");
  if (found == json.end() || found->is_null()) return {};
  return found->get<std::vector<std::string>>();
}

MaxTextCase ReadMaxTextCase(const fs::path& json_file) {
  MaxTextCase one;
  one.folder = json_file.parent_path();
  one.json = ReadJson(json_file);
  one.name = one.json.value("case", json_file.stem().string());
  const std::vector<fs::path> own = {fs::path(json_file).replace_extension(".safetensors")};
  one.tensors = weights::OpenSafetensors(own);
  const Json& init = one.json.contains("init_file") ? one.json.at("init_file") : Json();
  const std::vector<fs::path> other = {one.folder /
                                       (init.is_string() ? init.get<std::string>() : own[0].filename().string())};
  one.init = weights::OpenSafetensors(other).Under("params/");
  return one;
}

Settings SettingsOfMaxText(const Json& config, const std::vector<std::string>& overrides, const std::string& where) {
  const KeyTable table = KeyTable::BuiltIn();
  std::map<std::string, std::string> values = {{"override_model_config", "true"}};
  for (const auto& [key, value] : config.items()) {
    const std::string base = "base_" + key;
    if (table.Find(key) != nullptr) {
      values[key] = TextOf(value);
    } else if (table.Find(base) != nullptr) {
      if (!config.contains(base)) values[base] = TextOf(value);
    } else if (!key.ends_with("_to_train_on")) {
      ThrowFile("{}: the configuration has the unknown key '{}'", where, key);
    }
  }
  for (const std::string& word : overrides) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) ThrowFile("{}: the override '{}' is not key=value", where, word);
    values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  SettingsRequest request;
  for (const auto& [key, value] : values) request.words.push_back(key + "=" + value);
  return Settings::Load(request);
}

MaxTextRecipe RecipeOfMaxText(const Settings& settings, const std::vector<std::string>& forced,
                              const fs::path& folder) {
  MaxTextRecipe result;
  std::string name = settings.Text("quantization");
  bool qwix = settings.Bool("use_qwix_quantization"), nearest = false;
  for (const std::string& tag : forced) {
    if (tag == "@nosr") {
      nearest = true;
    } else if (tag.starts_with("@force_")) {
      name = tag.substr(7);
      qwix = false;
    } else {
      ThrowFile("the forced configuration '{}' is not known", tag);
    }
  }
  if (name.empty()) return result;
  try {
    const quant::Recipe recipe = quant::FindRecipe(name, qwix);
    result.rules = quant::RulesOf(recipe, OptionsOf(recipe, settings), MixedPrecision(settings, folder));
  } catch (const Error&) {
    result.refused = true;
    return result;
  }
  if (nearest) RoundGradientsToNearest(result.rules);
  result.random_gradient = RandomGradient(result.rules);
  return result;
}

}  // namespace octavo
