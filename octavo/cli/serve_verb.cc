// octavo serve: a model behind OpenAI's API.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/chat_input.h"
#include "octavo/cli/generation.h"
#include "octavo/cli/verbs.h"
#include "octavo/server/serve.h"
#include "octavo/weights/stored_model.h"

namespace octavo {
namespace {

std::vector<std::string> CommaList(const std::string& text) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= text.size() && !text.empty()) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

server::AccessOptions ReadAccess(const Args& args, const std::string& host) {
  server::AccessOptions access;
  const char* key = std::getenv("OCTAVO_API_KEY");
  if (key != nullptr && *key != '\0') access.keys = server::ParseKeys(key, "OCTAVO_API_KEY");
  if (args.Has("api_key_file")) {
    const std::string path = args.Text("api_key_file", "");
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    for (const Sha256Digest& digest : server::ParseKeys(text, path)) access.keys.push_back(digest);
  }
  access.allowed_origins = CommaList(args.Text("allowed_origins", ""));
  for (const std::string& origin : access.allowed_origins) {
    if (origin.find("://") == std::string::npos || origin.ends_with('/')) {
      throw Error(ErrorCode::kUsage, fmt::format("allowed_origins: '{}' is not an origin", origin),
                  "expected https://name or http://name:port, without a path; several with commas");
    }
  }
  access.check_host = server::IsLocalHost(host) && !host.ends_with(".sock");
  return access;
}

// [NAME=]FOLDER,… as names and folders; without a name the folder's own.
std::vector<std::pair<std::string, std::string>> ReadAdapters(const std::string& list) {
  std::vector<std::pair<std::string, std::string>> adapters;
  for (const std::string& one : CommaList(list)) {
    const size_t equals = one.find('=');
    if (equals == 0 || equals + 1 == one.size()) {
      throw Error(ErrorCode::kUsage, fmt::format("adapter: '{}' has no {}", one, equals == 0 ? "name" : "folder"),
                  "expected NAME=FOLDER or FOLDER; several with commas");
    }
    if (equals != std::string::npos) {
      adapters.emplace_back(one.substr(0, equals), one.substr(equals + 1));
      continue;
    }
    const std::filesystem::path folder = std::filesystem::absolute(one + "/").lexically_normal().parent_path();
    adapters.emplace_back(folder.filename().string(), one);
  }
  return adapters;
}

// The model's templates, parsed here so that what is not understood is said before anything is served.
text::ChatTemplateFiles ReadTemplates(const Args& args, const engine::ServingOptions& serving) {
  if (args.Has("serve_chat") && !args.Switch("serve_chat")) return {};
  const std::string given = args.Text("chat_template", "");
  text::ChatTemplateFiles files;
  try {
    files = FindChatTemplates(serving.tokenizer_path, weights::OpenStored(serving.path).tokenizer, serving.path, given);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage || !given.empty()) throw;
    return {};  // a model without a template completes texts
  }
  for (const auto& entry : files.templates) {
    try {
      text::ChatTemplate::Parse(entry.second);
    } catch (const Error& error) {
      throw Error(ErrorCode::kUsage, fmt::format("{}; /v1/chat/completions would be wrong", error.message()),
                  "give chat_template=FILE, or serve_chat=false for completions only");
    }
  }
  return files;
}

int Run(const Args& args) {
  const GenerationWords words = ReadGenerationWords(args);
  server::ServeOptions options;
  options.http.host = args.Text("host", "127.0.0.1");
  options.http.port = static_cast<int>(args.Int("port", 8080, 0, 65535));
  options.access = ReadAccess(args, options.http.host);
  options.drain_seconds = static_cast<double>(args.Int("drain_seconds", 30, 0, 3600));
  options.files = server::WebFiles();
  options.web_dir = args.Text("web_dir", "");
  server::RequireSafe(options);
  server::ApiOptions api;
  api.strict_request = args.Switch("strict_request");
  api.metrics_public = args.Switch("metrics_public");
  api.metrics_prefix = args.Text("metrics_prefix", "octavo_");

  const quant::RecipeChoice recipe = quant::ChooseRecipe(words.settings);
  engine::ServingOptions serving = engine::ServingOptionsFrom(words.settings, recipe, words.model);
  serving.name = args.Text("served_model_name", "");
  serving.slots = args.Int("max_concurrent_decodes", serving.slots, 1, 1024);
  serving.max_queue = args.Int("max_queue", 256, 0, 1 << 20);
  serving.threads = args.Threads();
  for (auto& adapter : ReadAdapters(args.Text("adapter", ""))) serving.adapters.push_back(std::move(adapter));
  if (args.Has("adapter_folder")) api.adapters.folder = server::AdapterRoot(args.Text("adapter_folder", ""));
  api.adapters.most_adapters = static_cast<int>(args.Int("max_adapters", 32, 0, 1 << 20));
  api.templates = ReadTemplates(args, serving);
  // Before the model is loaded: a port that is taken is known at once, and early clients are told to wait.
  std::optional<server::Server> http(std::in_place, std::move(options));
  const auto model = engine::ServingModel::Open(serving);
  const auto say = [&](const std::string& line) {
    if (!args.Switch("quiet")) fmt::print(stderr, "{}\n", line);
  };
  const std::string ignored = words.settings.IgnoredNote();
  if (!ignored.empty()) say("note: " + ignored);
  for (const std::string& note : model->loaded().notes) say("note: " + note);
  api.sampling = SamplingFrom(args, words.settings, model->defaults(), {});
  api.default_max_tokens = model->defaults().max_new_tokens.value_or(0);
  api.end_ids = model->defaults().end_ids;
  engine::Adapters& adapters = model->adapters();
  adapters.Reserve(model->info().id);
  api.adapters.load = [&](const std::string& name, const std::filesystem::path& folder) {
    adapters.Load(name, folder);
    say(fmt::format("adapter   {} loaded from {}", name, folder.string()));
  };
  api.adapters.unload = [&](const std::string& name) {
    const bool found = adapters.Unload(name);
    if (found) say(fmt::format("adapter   {} unloaded", name));
    return found;
  };
  const bool chat = !api.templates.templates.empty();
  if (!chat) say("note: no chat template; /v1/completions only");

  const auto scheduler = model->Start();
  http->Open(*scheduler, std::move(api));
  http->EndOnSignals(say);
  if (args.Switch("json")) {
    fmt::print("{{\"event\":\"ready\",\"url\":\"{}\",\"port\":{}}}\n", http->url(), http->port());
    std::fflush(stdout);
  }
  say(fmt::format("ready     {}   {}OpenAI API /v1   metrics /metrics", http->url(), chat ? "chat page /   " : ""));
  say(fmt::format("model     {}", model->Describe()));
  if (const auto names = adapters.Names(); !names.empty()) say(fmt::format("adapters  {}", fmt::join(names, ", ")));
  const bool complete = http->Run();
  http.reset();  // what is left of its requests refers to the scheduler
  say(complete ? "done      every request was finished" : "done      cut");
  return complete ? 0 : 130;
}

}  // namespace

VerbSpec ServeVerb() {
  std::vector<OptionSpec> options = {
      {"port", "N", "8080; 0: any free one, which is printed"},
      {"host", "ADDRESS", "127.0.0.1; another needs a key; a path that ends in .sock is a local socket"},
      {"api_key_file", "FILE", "keys, one a line; OCTAVO_API_KEY in the environment is one more"},
      {"allowed_origins", "LIST", "web pages elsewhere that may use the server: https://a.example,https://b.example"},
      {"max_concurrent_decodes", "N", "requests that run together (slots), 8; MaxText: per_device_batch_size"},
      {"max_queue", "N", "requests that wait, 256; more get 429"},
      {"drain_seconds", "N", "time for running requests after Ctrl-C or SIGTERM, 30; a second one cuts them"},
      {"served_model_name", "NAME", "the id that clients use"},
      {"adapter", "LIST", "LoRA adapters in PEFT's form, models by their names: poet=./poet,coder=./coder"},
      {"adapter_folder", "DIR", "requests may load adapters that lie in it, and unload: /v1/load_lora_adapter"},
      {"max_adapters", "N", "loaded at a time when requests load them, 32"},
      {"chat_template", "FILE", "a chat template instead of the model's own"},
      {"serve_chat", "BOOL", "false: completions only"},
      {"web_dir", "DIR", "reads the page's files there at every request, for who writes pages: web/chat"},
      {"strict_request", "", "unknown fields of a request are errors instead of notes"},
      {"metrics_public", "", "/metrics and /version need no key"},
      {"metrics_prefix", "TEXT", "octavo_; vllm: or jetstream_ for existing dashboards"}};
  for (const OptionSpec& option : GenerationOptions()) {
    if (option.name != "max_tokens" && option.name != "stop" && option.name != "seed" && option.name != "adapter") {
      options.push_back(option);
    }
  }
  return {.name = "serve",
          .synopsis = "MODEL [port=8080] [api_key_file=FILE] [key=value…]",
          .summary = "serve a model: OpenAI's API, a chat page, metrics",
          .details =
              "MODEL is what octavo generate takes. Any client of OpenAI's API works with base_url\n"
              "http://127.0.0.1:8080/v1; / is a chat page, /health and /metrics are for machines. Only this machine\n"
              "can connect unless host= says otherwise, and then a key is needed. docs/howto/serve.md lists every\n"
              "route, field and limit.\n"
              "  octavo serve out/x-int8\n"
              "  OCTAVO_API_KEY=secret octavo serve out/x-int8 host=0.0.0.0 port=8000 quantize_kvcache=true\n"
              "  octavo serve base adapter=poet=out/poet,coder=out/coder     # requests name one as their model\n"
              "  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\\n"
              "    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 32}'",
          .most_positionals = 2,
          .options = std::move(options),
          .run = Run,
          .takes_settings = true};
}

}  // namespace octavo
