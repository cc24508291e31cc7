// How a model is presented to clients: defaults of sampling, its chat template, names. Filled by `octavo serve` from
// the model's files, read by every route.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "octavo/engine/request.h"
#include "octavo/text/chat_template_files.h"

namespace octavo::server {

// How requests may change the adapters of a running server.
struct AdapterControl {
  std::filesystem::path folder;  // adapters that lie in it may be loaded; empty: none, and none unloaded either
  int most_adapters = 32;        // at a time, those of the start included
  // Throws engine::NameTaken, and usage and file Errors for an adapter that cannot be used. Called on a thread of its
  // own.
  std::function<void(const std::string& name, const std::filesystem::path& folder)> load;
  std::function<bool(const std::string& name)> unload;  // false: there is none of that name
};

struct ApiOptions {
  engine::Sampling sampling;          // where a request says nothing: generation_config.json
  int64_t default_max_tokens = 0;     // of chat answers; 0: what the context leaves
  std::vector<int32_t> end_ids;       // that end a text; empty: the tokenizer's
  text::ChatTemplateFiles templates;  // none: /v1/chat/completions answers 400
  bool strict_request = false;        // unknown fields are errors
  bool metrics_public = false;        // /metrics and /version need no key
  std::string metrics_prefix = "octavo_";
  AdapterControl adapters;
  double ping_seconds = 15;  // silence after which a stream gets a comment
};

}  // namespace octavo::server
