// The files of a trained tokenizer, as the Hugging Face library reads them.
#include <nlohmann/json.hpp>

#include "octavo/text/bpe_trainer.h"
#include "octavo/text/bpe_trainer_words.h"
#include "octavo/text/tokenizer_bytechars.h"

namespace octavo::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

Json AddedToken(const std::string& content) {
  return {{"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},    {"normalized", false},  {"special", true}};
}

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json PreTokenizer(const std::string& pattern) {
  if (pattern == "gpt2") return ByteLevel(true);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", TrainerPattern(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, ByteLevel(false)})}};
}

}  // namespace

std::string TokenizerJson(const TrainedBpe& trained) {
  const size_t special = trained.options.special_tokens.size();
  Json added = Json::array();
  Json vocab = Json::object();
  std::vector<std::string> spelled;
  for (size_t id = 0; id < trained.tokens.size(); ++id) {
    spelled.push_back(id < special ? trained.tokens[id] : BytesToChars(trained.tokens[id]));
    if (id < special) {
      Json token = {{"id", id}};
      token.update(AddedToken(trained.tokens[id]));
      added.push_back(std::move(token));
    }
  }
  // ordered_json looks for a key among all before it: the many go in through its container.
  auto& members = vocab.get_ref<Json::object_t&>();
  for (size_t id = 0; id < spelled.size(); ++id) {
    static_cast<Json::object_t::Container&>(members).emplace_back(spelled[id], id);
  }
  Json merges = Json::array();
  for (const auto& [left, right] : trained.merges) {
    merges.push_back(spelled[static_cast<size_t>(left)] + " " + spelled[static_cast<size_t>(right)]);
  }
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false}};
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  Json file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  file["added_tokens"] = std::move(added);
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = PreTokenizer(trained.options.pattern);
  file["post_processor"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  file["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  file["model"] = std::move(model);
  return file.dump(1) + "\n";
}

std::string TokenizerConfigJson(const TrainedBpe& trained, bool chat) {
  const std::vector<std::string>& special = trained.options.special_tokens;
  Json file = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  Json decoder = Json::object();
  for (size_t id = 0; id < special.size(); ++id) decoder[std::to_string(id)] = AddedToken(special[id]);
  file["added_tokens_decoder"] = std::move(decoder);
  if (!special.empty()) {
    file["bos_token"] = special[0];
    file["eos_token"] = chat ? "<|im_end|>" : special[0];
    file["pad_token"] = special[0];
  }
  if (chat) file["chat_template"] = kChatMl;
  return file.dump(2) + "\n";
}

}  // namespace octavo::text
