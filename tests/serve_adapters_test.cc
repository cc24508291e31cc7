// Adapters of a whole server over a real model, float and in codes, asked through sockets: chosen by `model`, loaded
// and unloaded by request, several and the base in one batch, each with the answer that it gives alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/temp_folder.h"
#include "octavo/engine/serving_model.h"
#include "octavo/models/test_models.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/server/serve.h"
#include "octavo/server/server_test_support.h"
#include "octavo/weights/test_adapters.h"

namespace octavo {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ServedAdapters : public testing::TestWithParam<const char*> {
 protected:
  ServedAdapters() {
    models::ModelConfig config = models::TinyLlama();
    config.vocab_size = 258;
    config.head_dim = 16;  // rotary features of whole pairs, as files have them
    config.max_target_length = config.max_position_embeddings = 256;
    config.normalize_embedding_logits = false;
    config.query_pre_attn_scalar = 0.25;
    ops::TestBench bench(2);
    const auto model = models::MakeModel(config);
    models::Initialize(*model, RngKey::FromSeed(5), bench.pool);
    FolderPublisher publisher(folder_ / "base");
    weights::ExportHf(
        config, [&](const std::string& name) { return model->parameter_set().Find(name)->tensor(); }, {}, publisher);
    publisher.Publish();
    for (const auto& [name, seed] : {std::pair("poet", 1u), {"coder", 100u}, {"singer", 200u}}) {
      weights::WriteRandomAdapter(folder_ / "adapters" / name, config, seed);
    }
    settings_.emplace(Settings::Load({.words = {std::string("quantization=") + GetParam()}}));
    recipe_ = quant::ChooseRecipe(*settings_);
    engine::ServingOptions options;
    options.path = (folder_ / "base").string();
    options.tokenizer_path = "bytes";
    options.recipe = &recipe_;
    options.threads = 2;
    options.adapters = {{"poet", (folder_ / "adapters/poet").string()}};
    model_ = engine::ServingModel::Open(options);
    model_->adapters().Reserve("base");
    scheduler_ = model_->Start();
    server::ApiOptions api;
    api.sampling.temperature = 0;
    api.adapters.folder = folder_ / "adapters";
    api.adapters.load = [this](const std::string& name, const std::filesystem::path& path) {
      model_->adapters().Load(name, path);
    };
    api.adapters.unload = [this](const std::string& name) { return model_->adapters().Unload(name); };
    server_ = std::make_unique<server::Server>(
        server::ServeOptions{.http = {.port = 0}, .access = {.keys = {Sha256("secret")}}});
    server_->Open(*scheduler_, std::move(api));
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~ServedAdapters() override {
    server_->Drain();
    thread_.join();
    server_.reset();
  }

  std::string Ask(const std::string& request) {
    server::RawClient client(server_->port());
    client.Send(request);
    return client.ReadAnswer();
  }
  std::string Get(const std::string& path) {
    return Ask(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: secret\r\n\r\n", path));
  }
  std::string Post(const std::string& path, const json& body, const std::string& key = "secret") {
    return Ask(server::PostText(path, body.dump(), "X-Api-Key: " + key + "\r\n"));
  }
  static json Completion(const std::string& name, int tokens = 24) {
    return {{"model", name}, {"prompt", "once upon"},    {"max_tokens", tokens},
            {"logprobs", 0}, {"return_token_ids", true}, {"ignore_eos", true}};
  }
  // Token ids and log-probabilities of an answer: its bits.
  static json BitsOf(const std::string& answer) {
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
    const json choice = json::parse(answer.substr(answer.find("\r\n\r\n") + 4)).at("choices").at(0);
    return {{"ids", choice.at("token_ids")}, {"logprobs", choice.at("logprobs").at("token_logprobs")}};
  }
  json Bits(const std::string& name) { return BitsOf(Post("/v1/completions", Completion(name))); }

  TempFolder folder_;
  std::optional<Settings> settings_;
  quant::RecipeChoice recipe_;
  std::unique_ptr<engine::ServingModel> model_;
  std::unique_ptr<engine::Scheduler> scheduler_;
  std::unique_ptr<server::Server> server_;
  std::thread thread_;
};

TEST_P(ServedAdapters, ChosenByModelInOneBatch) {
  const json load = {{"lora_name", "coder"}, {"lora_path", "coder"}};
  EXPECT_THAT(Post("/v1/load_lora_adapter", load, "wrong"), HasSubstr("HTTP/1.1 401"));
  const json before = Bits("base");
  EXPECT_THAT(Post("/v1/load_lora_adapter", load), HasSubstr("Success: LoRA adapter 'coder' added successfully."));
  const std::string listed = Get("/v1/models");
  const json models = json::parse(listed.substr(listed.find("\r\n\r\n") + 4)).at("data");
  ASSERT_EQ(models.size(), 3u);
  const char* expected[] = {"base", "coder", "poet"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(models[i]["id"], expected[i]);
    EXPECT_EQ(models[i]["root"], "base");
    EXPECT_EQ(models[i]["parent"], i == 0 ? json() : json("base"));
    EXPECT_EQ(models[i]["max_model_len"], 256);
  }
  EXPECT_EQ(Bits("base"), before);
  const std::map<std::string, json> alone = {{"base", before}, {"poet", Bits("poet")}, {"coder", Bits("coder")}};
  EXPECT_NE(alone.at("poet")["ids"], before["ids"]);
  EXPECT_NE(alone.at("coder")["ids"], before["ids"]);
  EXPECT_NE(alone.at("coder")["ids"], alone.at("poet")["ids"]);
  // All at once: they are in the queue before the first step is taken.
  scheduler_->Pause();
  std::vector<std::pair<std::string, std::unique_ptr<server::RawClient>>> clients;
  for (const char* name : {"base", "poet", "coder", "poet", "base", "coder"}) {
    clients.emplace_back(name, std::make_unique<server::RawClient>(server_->port()));
    clients.back().second->Send(server::PostText("/v1/completions", Completion(name).dump(), "X-Api-Key: secret\r\n"));
  }
  while (scheduler_->Stats().waiting < 6) std::this_thread::yield();
  scheduler_->Resume();
  for (auto& [name, client] : clients) EXPECT_EQ(BitsOf(client->ReadAnswer()), alone.at(name)) << name;
}

TEST_P(ServedAdapters, LoadedAndUnloadedWhileOneRuns) {
  const json before = Bits("base"), poet = Bits("poet");
  // A stream of poet's goes on while the name is given to another.
  scheduler_->Pause();
  server::RawClient client(server_->port());
  client.Send(server::PostText("/v1/completions", Completion("poet").dump(), "X-Api-Key: secret\r\n"));
  while (scheduler_->Stats().waiting < 1) std::this_thread::yield();
  const json unload = {{"lora_name", "poet"}};
  EXPECT_THAT(Post("/v1/unload_lora_adapter", unload), HasSubstr("Success: LoRA adapter 'poet' removed successfully."));
  EXPECT_THAT(Post("/v1/completions", Completion("poet")), HasSubstr("\"code\":\"model_not_found\""));
  EXPECT_THAT(Post("/v1/load_lora_adapter", {{"lora_name", "poet"}, {"lora_path", "singer"}}),
              HasSubstr("HTTP/1.1 200"));
  scheduler_->Resume();
  EXPECT_EQ(BitsOf(client.ReadAnswer()), poet);
  const json singer = Bits("poet");
  EXPECT_NE(singer["ids"], poet["ids"]);
  EXPECT_THAT(Post("/v1/load_lora_adapter", {{"lora_name", "poet"}, {"lora_path", "poet"}}), HasSubstr("HTTP/1.1 409"));
  EXPECT_EQ(Bits("poet"), singer);
  EXPECT_EQ(Bits("base"), before);
  EXPECT_THAT(Post("/v1/unload_lora_adapter", unload), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(Post("/v1/unload_lora_adapter", unload), HasSubstr("HTTP/1.1 404"));
  EXPECT_EQ(Bits("base"), before);
}

TEST_P(ServedAdapters, WhatIsRefused) {
  const auto load = [&](const char* name, const char* path) {
    const std::string answer = Post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", path}});
    return answer.substr(9, 3) + " " + answer.substr(answer.find("\r\n\r\n") + 4);
  };
  EXPECT_THAT(load("base", "coder"), HasSubstr("409 {\"error\":{\"message\":\"an adapter cannot be called 'base'"));
  EXPECT_THAT(load("poet", "coder"), HasSubstr("409 {\"error\":{\"message\":\"an adapter 'poet' is loaded already"));
  EXPECT_THAT(load("x", "../base"), HasSubstr("400 {\"error\":{\"message\":\"lora_path: expected a folder inside"));
  EXPECT_THAT(load("x", "."), HasSubstr("400 {\"error\":{\"message\":\"no adapter_model.safetensors in ."));
  std::ofstream(folder_ / "adapters/singer/adapter_config.json")
      << R"({"peft_type":"LORA","r":3,"lora_alpha":6,"target_modules":["q_proj"],"use_dora":true})";
  EXPECT_THAT(load("x", "singer"),
              HasSubstr("400 {\"error\":{\"message\":\"singer/adapter_config.json: use_dora=true is not supported"));
  EXPECT_THAT(load("x", "nothing"), HasSubstr("404 {\"error\":{\"message\":\"there is no adapter folder 'nothing'"));
}

INSTANTIATE_TEST_SUITE_P(Recipes, ServedAdapters, testing::Values("", "int8"),
                         [](const auto& one) { return *one.param == '\0' ? "floats" : one.param; });

}  // namespace
}  // namespace octavo
