#include "octavo/text/chat_template_files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"

namespace octavo::text {
namespace {

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

using Names = std::map<std::string, std::string>;

TEST(ChatTemplateFiles, ReadsTheConfiguration) {
  const TempFolder folder;
  const std::filesystem::path config = folder.path() / "tokenizer_config.json";
  Write(config, R"({"chat_template": "{{ 1 }}", "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                    "pad_token": null, "model_max_length": 1000000000000000019884624838656})");
  for (const std::filesystem::path& path : {folder.path(), config}) {
    const ChatTemplateFiles files = ReadChatTemplateFiles(path);
    EXPECT_EQ(files.templates, (Names{{"default", "{{ 1 }}"}}));
    EXPECT_EQ(files.special_tokens, (Names{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
    EXPECT_EQ(files.Choose(true), "{{ 1 }}");
  }
  Write(config, R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  Write(folder.path() / "special_tokens_map.json", R"({"unk_token": {"content": "?"}})");
  const ChatTemplateFiles named = ReadChatTemplateFiles(folder.path());
  EXPECT_EQ(named.Choose(false), "a");
  EXPECT_EQ(named.Choose(true), "b");
  EXPECT_EQ(named.Choose(true, "default"), "a");
  EXPECT_THROW(named.Choose(false, "rag"), Error);
  EXPECT_EQ(named.special_tokens, (Names{{"unk_token", "?"}}));
}

TEST(ChatTemplateFiles, PrefersTemplateFiles) {
  const TempFolder folder;
  Write(folder.path() / "tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>"})");
  Write(folder.path() / "chat_template.jinja", "new\n");
  Write(folder.path() / "additional_chat_templates" / "rag.jinja", "more");
  const ChatTemplateFiles files = ReadChatTemplateFiles(folder.path());
  EXPECT_EQ(files.templates, (Names{{"default", "new\n"}, {"rag", "more"}}));
  EXPECT_EQ(files.special_tokens, (Names{{"bos_token", "<s>"}}));
  EXPECT_EQ(ReadChatTemplateFiles(folder.path() / "chat_template.jinja").templates, (Names{{"default", "new\n"}}));
}

TEST(ChatTemplateFiles, RefusesMalformedFiles) {
  const TempFolder folder;
  EXPECT_TRUE(ReadChatTemplateFiles(folder.path()).templates.empty());
  EXPECT_THROW(ReadChatTemplateFiles(folder.path()).Choose(false), Error);
  EXPECT_THROW(ReadChatTemplateFiles(folder.path() / "missing.jinja"), Error);
  for (const char* bad : {"", "[]", "{\"chat_template\": 5}", "{\"chat_template\": [5]}", "{\"a\": 1, \"a\": 2}",
                          "{\"chat_template\": [{\"name\": \"x\"}]}"}) {
    Write(folder.path() / "tokenizer_config.json", bad);
    EXPECT_THROW(ReadChatTemplateFiles(folder.path()), Error) << bad;
  }
  Write(folder.path() / "tokenizer_config.json", "{}");
  Write(folder.path() / "chat_template.jinja", std::string(300000, 'x'));
  EXPECT_THROW(ReadChatTemplateFiles(folder.path()), Error);
}

}  // namespace
}  // namespace octavo::text
