// What octavo doctor says of a model and of a running server, one finding per subject.
#pragma once

#include <string>
#include <vector>

#include "octavo/cli/args.h"

namespace octavo {

enum class Health { kOk, kWarn, kFail };

struct Finding {
  Health health;
  std::string subject;
  std::string text;
};

// Opens the model as a server would: weights, tokenizer, chat template. Never throws for what is wrong with it.
std::vector<Finding> ModelFindings(const std::string& path, const Args& args);

// Asks http://HOST:PORT for /health; waits five seconds at most.
Finding ServerFinding(const std::string& url);

}  // namespace octavo
