// How a model is presented to clients: defaults of sampling, its chat template, names. Filled by `octavo serve` from
// the model's files, read by every route.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/engine/request.h"
#include "octavo/text/chat_template_files.h"

namespace octavo::server {

struct ApiOptions {
  engine::Sampling sampling;          // where a request says nothing: generation_config.json
  int64_t default_max_tokens = 0;     // of chat answers; 0: what the context leaves
  std::vector<int32_t> end_ids;       // that end a text; empty: the tokenizer's
  text::ChatTemplateFiles templates;  // none: /v1/chat/completions answers 400
  bool strict_request = false;        // unknown fields are errors
  bool metrics_public = false;        // /metrics and /version need no key
  std::string metrics_prefix = "octavo_";
  double ping_seconds = 15;  // silence after which a stream gets a comment
};

}  // namespace octavo::server
