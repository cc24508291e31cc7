// octavo ls, octavo cp: what is built in, and copies of it to edit.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/base/publish.h"
#include "octavo/cli/recipe_table.h"
#include "octavo/cli/verbs.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

int RunLs(const Args& args) {
  const std::string what = args.positionals().empty() ? "recipes" : args.positionals()[0];
  if (what != "recipes") {
    throw Error(ErrorCode::kUsage, fmt::format("octavo ls: nothing is called '{}'", what), "there are: recipes");
  }
  const std::vector<quant::Recipe> recipes = quant::BuiltInRecipes();
  if (args.Switch("markdown")) {
    fmt::print("{}", RecipesMarkdown(recipes));
    return 0;
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
  return 0;
}

int RunCp(const Args& args) {
  const std::string& name = args.positionals()[0];
  const std::filesystem::path target = args.positionals()[1];
  const std::vector<quant::Recipe> recipes = quant::BuiltInRecipes();
  std::vector<std::string_view> files;
  for (const quant::Recipe& recipe : recipes) {
    files.push_back(recipe.file);
    if (recipe.file != name && recipe.file != name + ".yml") continue;
    if (std::filesystem::exists(target)) {
      throw Error(ErrorCode::kUsage, fmt::format("{} exists", target.string()),
                  "choose another name, or remove it first");
    }
    PublishFile(target, recipe.text);
    return 0;
  }
  throw Error(ErrorCode::kUsage, fmt::format("octavo cp: no built-in file '{}'", name),
              fmt::format("nearest: {}", fmt::join(NearestNames(name, files, 3), ", ")));
}

}  // namespace

VerbSpec LsVerb() {
  return {.name = "ls",
          .synopsis = "[recipes] [--json | --markdown]",
          .summary = "what is built in: recipes",
          .details = "",
          .least_positionals = 0,
          .most_positionals = 1,
          .options = {{"markdown", "", "the page docs/recipes.md"}},
          .run = RunLs};
}

VerbSpec CpVerb() {
  return {.name = "cp",
          .synopsis = "NAME FILE",
          .summary = "copy a built-in file out to edit: octavo cp qwix.int8 my_recipe.yml",
          .details = "",
          .least_positionals = 2,
          .most_positionals = 2,
          .options = {},
          .run = RunCp};
}

}  // namespace octavo
