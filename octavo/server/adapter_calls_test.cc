// Loading and unloading adapters by request: what is read, what is refused and how it is said. The engine's side of it
// is a list of names here; tests/serve_adapters_test.cc has a real one.
#include "octavo/server/adapter_calls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>

#include "octavo/base/temp_folder.h"
#include "octavo/engine/adapters.h"
#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Folders poet and deep/coder inside `open`, and what no request may reach beside it.
struct Subject {
  explicit Subject(bool on = true, int most = 32) {
    for (const char* folder : {"open/poet", "open/deep/coder", "secret/poet", "open-not/poet"}) {
      fs::create_directories(folders / folder);
      std::ofstream(folders / folder / "adapter_config.json") << "{}";
      std::ofstream(folders / folder / "adapter_model.safetensors") << "x";
    }
    engine::MockOptions mock;
    mock.adapters = {"first"};
    ApiOptions options = TestApi::DefaultOptions();
    if (on) options.adapters.folder = folders / "open";
    options.adapters.most_adapters = most;
    options.adapters.load = [this](const std::string& name, const fs::path& folder) {
      if (before_load) before_load();
      if (loaded.contains(name)) throw engine::NameTaken("an adapter '" + name + "' is loaded already");
      if (name == "bad") {
        throw Error(ErrorCode::kFile, (folder / "adapter_config.json").string() + ": use_dora=true is not supported",
                    "the adapter in " + folder.parent_path().string() + " is a DoRA");
      }
      if (name == "broken") throw Error(ErrorCode::kJob, "no memory");
      loaded[name] = folder.string();
    };
    options.adapters.unload = [this](const std::string& name) { return loaded.erase(name) > 0; };
    api = std::make_unique<TestApi>(mock, options);
  }
  HttpResponse Load(const std::string& name, const std::string& path) {
    return api->Post("/v1/load_lora_adapter", json{{"lora_name", name}, {"lora_path", path}}.dump());
  }
  HttpResponse Unload(const std::string& name) {
    return api->Post("/v1/unload_lora_adapter", json{{"lora_name", name}}.dump());
  }

  TempFolder folders;
  std::function<void()> before_load;
  std::map<std::string, std::string> loaded;
  std::unique_ptr<TestApi> api;
};

// "409 name_taken lora_name an adapter …".
std::string ErrorOf(const HttpResponse& response) {
  const json error = json::parse(response.body).at("error");
  const auto text = [&](const char* key) { return error.at(key).is_null() ? "-" : error.at(key).get<std::string>(); };
  return fmt::format("{} {} {} {}", response.status, text("code"), text("param"), text("message"));
}

constexpr const char* kOutside =
    "400 invalid_value lora_path lora_path: expected a folder inside of the server's adapter_folder, without '..'";

TEST(AdapterCalls, LoadAndUnload) {
  Subject subject;
  const fs::path open = fs::canonical(subject.folders / "open");
  const HttpResponse added = subject.Load("poet", "poet");
  EXPECT_EQ(added.status, 200);
  EXPECT_EQ(added.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(added.body, "Success: LoRA adapter 'poet' added successfully.");
  EXPECT_EQ(subject.loaded.at("poet"), (open / "poet").string());
  EXPECT_EQ(ErrorOf(subject.Load("poet", "deep/coder")),
            "409 name_taken lora_name an adapter 'poet' is loaded already");
  EXPECT_EQ(subject.Load("poet", "poet").headers.at(0),
            (std::pair<std::string, std::string>("x-should-retry", "false")));
  EXPECT_EQ(subject.Load("a/b", "./deep//coder/").status, 200);
  EXPECT_EQ(subject.loaded.at("a/b"), (open / "deep/coder").string());
  EXPECT_EQ(subject.Load("whole", (open / "deep/coder").string()).status, 200);
  EXPECT_EQ(subject.Unload("poet").body, "Success: LoRA adapter 'poet' removed successfully.");
  EXPECT_EQ(ErrorOf(subject.Unload("poet")), "404 adapter_not_found lora_name no adapter 'poet' is loaded");
}

TEST(AdapterCalls, NothingOutsideOfTheFolder) {
  Subject subject;
  const fs::path root = fs::canonical(subject.folders.path());
  fs::create_directory_symlink(root / "secret/poet", root / "open/link");
  fs::create_directory_symlink(root / "open/poet", root / "open/inside");
  fs::create_directories(root / "open/linked");
  fs::create_symlink(root / "secret/poet/adapter_config.json", root / "open/linked/adapter_config.json");
  fs::create_directories(root / "open/weights");
  fs::create_symlink("../../secret/poet/adapter_model.safetensors", root / "open/weights/adapter_model.safetensors");
  fs::create_directory_symlink("loop", root / "open/loop");
  for (const std::string& path :
       {std::string("../secret/poet"), std::string("poet/../../secret/poet"), std::string("poet/../poet"),
        std::string("/"), std::string("/etc"), (root / "secret/poet").string(), (root / "open-not/poet").string(),
        (root / "open/../secret/poet").string(), std::string("link"), std::string("linked"), std::string("weights"),
        std::string("po\0et", 5), std::string(5000, 'x'), std::string("/no-such-folder")}) {
    EXPECT_EQ(ErrorOf(subject.Load("x", path)), kOutside) << path;
  }
  for (const char* path : {"nothing", "poet/adapter_config.json", "loop"}) {
    EXPECT_EQ(ErrorOf(subject.Load("x", path)),
              fmt::format("404 adapter_not_found lora_path there is no adapter folder '{}'", path));
  }
  EXPECT_TRUE(subject.loaded.empty());
  EXPECT_EQ(subject.Load("x", "inside").status, 200);
  EXPECT_EQ(subject.loaded.at("x"), (root / "open/poet").string());
}

TEST(AdapterCalls, ReasonsWithoutTheFolder) {
  Subject subject;
  EXPECT_EQ(ErrorOf(subject.Load("bad", "poet")),
            "400 invalid_adapter lora_path poet/adapter_config.json: use_dora=true is not supported\n"
            "the adapter in . is a DoRA");
  EXPECT_EQ(ErrorOf(subject.Load("broken", "poet")), "500 - - no memory");
}

TEST(AdapterCalls, FieldsAreStrict) {
  Subject subject;
  const auto load = [&](const char* body) { return ErrorOf(subject.api->Post("/v1/load_lora_adapter", body)); };
  const std::string empty = "expected a string that is not empty";
  EXPECT_EQ(load("{}"), "400 invalid_value lora_name lora_name: " + empty);
  EXPECT_EQ(load(R"({"lora_name":"x"})"), "400 invalid_value lora_path lora_path: " + empty);
  EXPECT_EQ(load(R"({"lora_name":"","lora_path":"poet"})"), "400 invalid_value lora_name lora_name: " + empty);
  EXPECT_EQ(load(R"({"lora_name":1,"lora_path":"poet"})"), "400 invalid_value lora_name lora_name: expected a string");
  EXPECT_EQ(load(R"({"lora_name":"x","lora_path":"poet","load_inplace":true})"),
            "400 unknown_field load_inplace unknown field 'load_inplace'");
  EXPECT_EQ(load("[]"), "400 - - the body must be a JSON object");
  EXPECT_EQ(ErrorOf(subject.api->Post("/v1/unload_lora_adapter", R"({"lora_name":"x","lora_int_id":1})")),
            "400 unknown_field lora_int_id unknown field 'lora_int_id'");
  EXPECT_TRUE(subject.loaded.empty());
}

TEST(AdapterCalls, OffWithoutAFolder) {
  Subject subject(false);
  const char* off = "404 - - this server changes no adapters on request; it would if started with adapter_folder=DIR";
  EXPECT_EQ(ErrorOf(subject.Load("poet", "poet")), off);
  EXPECT_EQ(ErrorOf(subject.Unload("first")), off);
  EXPECT_TRUE(subject.loaded.empty());
  try {
    AdapterRoot(subject.folders / "nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_TRUE(error.message().ends_with("nothing is no folder")) << error.message();
  }
}

TEST(AdapterCalls, AtMostSoMany) {
  Subject subject(true, 1);  // one is there from the start
  EXPECT_EQ(ErrorOf(subject.Load("poet", "poet")),
            "409 too_many_adapters lora_name 1 adapters are loaded, at most 1; unload one, or start with a larger "
            "max_adapters");
}

// A load that takes long holds up neither who asked nor anybody else; more than can wait are told so.
TEST(AdapterCalls, OthersGoOnMeanwhile) {
  Subject subject;
  std::promise<void> begun, go;
  subject.before_load = [&, first = true, ready = go.get_future().share()]() mutable {
    if (std::exchange(first, false)) begun.set_value();
    ready.wait();
  };
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  const auto begin = [&](int i) {
    waiting.push_back(std::make_shared<FakeExchange>(
        HttpRequest{.method = "POST",
                    .path = "/v1/load_lora_adapter",
                    .body = fmt::format(R"({{"lora_name":"{}","lora_path":"poet"}})", i)}));
    subject.api->router.Answer(waiting.back());
  };
  begin(0);
  begun.get_future().wait();
  EXPECT_EQ(subject.api->Post("/v1/completions", R"({"prompt":"ab","max_tokens":3})").status, 200);
  EXPECT_EQ(subject.Unload("other").status, 404);
  int taken = 1;
  for (int i = 1; i < 40; ++i) begin(i);
  go.set_value();
  for (size_t i = 1; i < waiting.size(); ++i) {
    const HttpResponse& response = waiting[i]->Wait();
    if (response.status == 200) {
      ++taken;
    } else {
      EXPECT_EQ(ErrorOf(response), "429 queue_full - 16 adapters are waiting to be loaded");
    }
  }
  EXPECT_EQ(waiting[0]->Wait().status, 200);
  EXPECT_EQ(taken, 17);
  EXPECT_EQ(subject.loaded.size(), static_cast<size_t>(taken));
}

TEST(AdapterCalls, ADrainingServerTakesNone) {
  Subject subject;
  subject.api->api.BeginDrain();
  EXPECT_EQ(subject.Load("poet", "poet").status, 503);
  EXPECT_TRUE(subject.loaded.empty());
}

}  // namespace
}  // namespace octavo::server
