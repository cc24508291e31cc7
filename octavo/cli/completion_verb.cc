// octavo completion: scripts for bash, zsh and fish. The scripts ask the binary (`octavo completion words …`), so they
// know every verb, option, key and value of the octavo that is installed.
#include <set>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/built_in.h"
#include "octavo/config/key_table.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

// Text after the last blank is completed by octavo; when it has nothing to say, files are offered.
constexpr std::string_view kBash = R"(# bash completion of octavo: source <(octavo completion bash)
_octavo() {
  local line=${COMP_LINE:0:COMP_POINT} word words candidates
  read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  word=${words[-1]}
  mapfile -t candidates < <(octavo completion words -- "${words[@]:1}" 2>/dev/null)
  # bash takes '=' for the end of a word: give back only what follows it.
  local done=''
  [[ $word == *=* ]] && done=${word%"${word##*=}"}
  COMPREPLY=("${candidates[@]#"$done"}")
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _octavo octavo
)";

constexpr std::string_view kZsh = R"(#compdef octavo
# zsh completion of octavo: octavo completion zsh > "${fpath[1]}/_octavo"
_octavo() {
  local -a candidates
  candidates=("${(@f)$(octavo completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -S '' -- "${(@)candidates:#}" || _files
}
compdef _octavo octavo
)";

constexpr std::string_view kFish =
    R"(# fish completion of octavo: octavo completion fish > ~/.config/fish/completions/octavo.fish
function __octavo_words
  set -l words (commandline -opc) (commandline -ct)
  octavo completion words -- $words[2..-1] 2>/dev/null
end
complete -c octavo -a '(__octavo_words)'
)";

std::vector<std::string> ValuesOf(const KeyInfo& key) {
  std::vector<std::string> values;
  if (key.name == "model_name") {
    values.emplace_back("default");
    for (const EmbeddedFile& file : BuiltInModels()) values.emplace_back(file.name.substr(0, file.name.size() - 4));
  } else if (key.name == "quantization") {
    for (const quant::Recipe& recipe : quant::BuiltInRecipes()) values.push_back(recipe.name);
  } else if (key.type == KeyType::kBool) {
    values = {"true", "false"};
  } else {
    for (const std::string& choice : key.choices) {
      if (!choice.empty()) values.push_back(choice);
    }
  }
  return values;
}

// Words that some verbs take as positionals.
std::vector<std::string> PositionalsOf(const VerbSpec& verb) {
  std::vector<std::string> words;
  if (verb.name == "config") words = {"show", "diff", "explain"};
  if (verb.name == "ls") words = {"recipes", "models", "configs"};
  if (verb.name == "completion") words = {"bash", "zsh", "fish"};
  if (verb.name == "cp") {
    for (const quant::Recipe& recipe : quant::BuiltInRecipes()) words.push_back(recipe.file);
    for (const EmbeddedFile& file : BuiltInModels()) words.push_back(fmt::format("models/{}", file.name));
    for (const EmbeddedFile& file : BuiltInConfigs()) words.push_back(fmt::format("configs/{}", file.name));
  }
  return words;
}

const VerbSpec* FindVerb(std::string_view name) {
  for (const VerbSpec& verb : Verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

// Everything that the last word could become.
std::vector<std::string> Candidates(const VerbSpec& verb, const std::vector<std::string>& words) {
  const std::string& last = words.back();
  const std::string dashes = last.starts_with("--") ? "--" : "";
  const KeyTable table = KeyTable::BuiltIn();
  std::vector<std::string> found;
  if (const size_t equals = last.find('='); equals != std::string::npos) {
    const KeyInfo* key = verb.takes_settings ? table.Find(last.substr(dashes.size(), equals - dashes.size())) : nullptr;
    if (key == nullptr) return found;
    for (const std::string& value : ValuesOf(*key)) found.push_back(last.substr(0, equals + 1) + value);
    return found;
  }
  if (dashes.empty()) found = PositionalsOf(verb);
  if (verb.name == "config" && words.size() == 3 && (words[1] == "explain" || words[1] == "show")) {
    for (const KeyInfo& key : table.keys()) found.push_back(key.name);
  }
  const bool explains = verb.name == "config" && words[1] == "explain";
  for (const std::span<const OptionSpec> options : {std::span<const OptionSpec>(verb.options), CommonOptions()}) {
    for (const OptionSpec& option : options) {
      if (dashes.empty() && (option.value.empty() || explains)) continue;  // key=value is how options are mostly given
      found.push_back(fmt::format("{}{}{}", dashes, option.name, option.value.empty() ? "" : "="));
    }
  }
  if (verb.takes_settings && !explains) {
    for (const KeyInfo& key : table.keys()) found.push_back(fmt::format("{}{}=", dashes, key.name));
  }
  return found;
}

void PrintCandidates(std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  std::vector<std::string> found;
  if (words.size() == 1) {
    for (const VerbSpec& verb : Verbs()) found.emplace_back(verb.name);
  } else if (const VerbSpec* verb = FindVerb(words[0])) {
    found = Candidates(*verb, words);
  }
  std::set<std::string> printed;  // some options are keys as well
  for (const std::string& word : found) {
    if (word.starts_with(words.back()) && printed.insert(word).second) fmt::print("{}\n", word);
  }
}

int RunCompletion(const Args& args) {
  const std::vector<std::string>& words = args.positionals();
  const std::string& what = words[0];
  if (what == "words") {
    PrintCandidates({words.begin() + 1, words.end()});
    return 0;
  }
  if (words.size() > 1) ThrowUsage("octavo completion: unexpected argument '{}'", words[1]);
  if (what != "bash" && what != "zsh" && what != "fish") {
    throw Error(ErrorCode::kUsage, fmt::format("octavo completion: no script for '{}'", what),
                "there are: bash, zsh, fish");
  }
  fmt::print("{}", what == "bash" ? kBash : what == "zsh" ? kZsh : kFish);
  return 0;
}

}  // namespace

VerbSpec CompletionVerb() {
  return {.name = "completion",
          .synopsis = "bash | zsh | fish",
          .summary = "a script that completes verbs, keys and values: source <(octavo completion bash)",
          .details =
              "  bash: source <(octavo completion bash)\n"
              "  zsh:  octavo completion zsh > \"${fpath[1]}/_octavo\"\n"
              "  fish: octavo completion fish > ~/.config/fish/completions/octavo.fish",
          .least_positionals = 1,
          .most_positionals = 1024,
          .options = {},
          .run = RunCompletion};
}

}  // namespace octavo
