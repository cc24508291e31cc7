// octavo ls, octavo cp: what is built in, and copies of it to edit.
#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/base/publish.h"
#include "octavo/cli/recipe_table.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/built_in.h"
#include "octavo/config/yaml.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

void ListRecipes(const Args& args) {
  const std::vector<quant::Recipe> recipes = quant::BuiltInRecipes();
  if (args.Switch("markdown")) {
    fmt::print("{}", RecipesMarkdown(recipes));
    return;
  }
  for (const quant::Recipe& recipe : recipes) {
    const RecipeLine line = DescribeRecipe(recipe);
    if (args.Switch("json")) {
      const nlohmann::json object = {{"event", "recipe"},         {"name", line.name},
                                     {"origin", line.origin},     {"use_qwix_quantization", line.with_qwix},
                                     {"weight", line.weight},     {"activation", line.activation},
                                     {"gradient", line.gradient}, {"scaling", line.scaling},
                                     {"coupling", line.extent},   {"options", line.options},
                                     {"summary", recipe.summary}};
      fmt::print("{}\n", object.dump());
    } else {
      fmt::print("{:<24} {:<7} {}\n", line.name, line.origin, recipe.summary);
    }
  }
}

void ListModels(const Args& args) {
  for (const EmbeddedFile& file : BuiltInModels()) {
    const Yaml yaml = Yaml::Parse(file.text, file.name);
    const auto number = [&](const char* key) {
      const Yaml* value = yaml.Find(key);
      return value == nullptr ? 0 : value->Int(key);
    };
    const Yaml* block = yaml.Find("decoder_block");
    const std::string name(file.name.substr(0, file.name.size() - 4));
    const std::string kind = block == nullptr ? "llama2" : block->Text("decoder_block");
    const int64_t layers = number("base_num_decoder_layers"), emb = number("base_emb_dim");
    const int64_t heads = number("base_num_query_heads"), vocab = number("vocab_size");
    const int64_t experts = std::max<int64_t>(number("num_experts"), 1);
    if (args.Switch("json")) {
      const nlohmann::json object = {{"event", "model"},       {"name", name},       {"decoder_block", kind},
                                     {"layers", layers},       {"emb_dim", emb},     {"heads", heads},
                                     {"num_experts", experts}, {"vocab_size", vocab}};
      fmt::print("{}\n", object.dump());
    } else {
      fmt::print("{:<26} {:<16} {:>3} layers  emb {:>5}  heads {:>3}  vocab {:>6}{}\n", name, kind, layers, emb, heads,
                 vocab, experts > 1 ? fmt::format("  {} experts", experts) : "");
    }
  }
}

// The first sentence of a config says what it is.
void ListConfigs(const Args& args) {
  for (const EmbeddedFile& file : BuiltInConfigs()) {
    const std::string_view line = file.text.substr(0, file.text.find('\n'));
    const std::string_view comment = line.starts_with("# ") ? line.substr(2) : std::string_view();
    const std::string_view about = comment.substr(0, comment.find(". "));
    if (args.Switch("json")) {
      fmt::print("{}\n", nlohmann::json({{"event", "config"}, {"name", file.name}, {"summary", about}}).dump());
    } else {
      fmt::print("{:<24} {}\n", file.name, about);
    }
  }
}

int RunLs(const Args& args) {
  const std::string what = args.positionals().empty() ? "recipes" : args.positionals()[0];
  if (what == "recipes") {
    ListRecipes(args);
  } else if (what == "models") {
    ListModels(args);
  } else if (what == "configs") {
    ListConfigs(args);
  } else {
    throw Error(ErrorCode::kUsage, fmt::format("octavo ls: nothing is called '{}'", what),
                "there are: models, recipes, configs");
  }
  return 0;
}

// Every built-in file by the name that cp takes: qwix.int8.yml, models/llama2-7b.yml, configs/base.yml; folders may be
// left out, and a recipe's own name does for its first file.
std::vector<std::pair<std::string, std::string>> BuiltInFiles() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const quant::Recipe& recipe : quant::BuiltInRecipes()) files.emplace_back(recipe.file, recipe.text);
  for (const EmbeddedFile& file : BuiltInModels()) files.emplace_back(fmt::format("models/{}", file.name), file.text);
  for (const EmbeddedFile& file : BuiltInConfigs()) files.emplace_back(fmt::format("configs/{}", file.name), file.text);
  return files;
}

int RunCp(const Args& args) {
  std::string name = args.positionals()[0];
  const std::filesystem::path target = args.positionals()[1];
  if (!name.ends_with(".yml")) name += ".yml";
  const std::vector<std::pair<std::string, std::string>> files = BuiltInFiles();
  std::string recipe_file;
  for (const quant::Recipe& recipe : quant::BuiltInRecipes()) {
    if (recipe_file.empty() && recipe.name + ".yml" == name) recipe_file = recipe.file;
  }
  for (const auto& [file, text] : files) {
    if (file != name && file != "configs/" + name && file != "models/" + name && file != recipe_file) continue;
    if (std::filesystem::exists(target)) {
      throw Error(ErrorCode::kUsage, fmt::format("{} exists", target.string()),
                  "choose another name, or remove it first");
    }
    PublishFile(target, text);
    if (args.Switch("json")) {
      fmt::print("{}\n", nlohmann::json({{"event", "copied"}, {"name", file}, {"file", target.string()}}).dump());
    } else if (!args.Switch("quiet")) {
      fmt::print(stderr, "copied    {} -> {}\n", file, target.string());
    }
    return 0;
  }
  std::vector<std::string_view> known;
  for (const auto& file : files) known.push_back(file.first);
  throw Error(ErrorCode::kUsage, fmt::format("octavo cp: no built-in file '{}'", args.positionals()[0]),
              fmt::format("nearest: {}", fmt::join(NearestNames(name, known, 3), ", ")));
}

}  // namespace

VerbSpec LsVerb() {
  return {.name = "ls",
          .synopsis = "[recipes | models | configs] [--json | --markdown]",
          .summary = "what is built in: recipes, models, configs",
          .details = "",
          .least_positionals = 0,
          .most_positionals = 1,
          .options = {{"markdown", "", "of recipes: the page docs/recipes.md"}},
          .run = RunLs};
}

VerbSpec CpVerb() {
  return {.name = "cp",
          .synopsis = "NAME FILE",
          .summary = "copy a built-in file out to edit: octavo cp models/llama2-7b my_model.yml",
          .details = "",
          .least_positionals = 2,
          .most_positionals = 2,
          .options = {},
          .run = RunCp};
}

}  // namespace octavo
