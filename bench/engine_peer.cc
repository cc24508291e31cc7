#include "bench/engine_peer.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "octavo/base/error.h"

namespace octavo::bench {
namespace {

std::string Quoted(const std::string& word) {
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// What a program prints on both streams.
std::string OutputOf(const std::string& program, const std::string& arguments) {
  const std::string command = Quoted(program) + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw Error(ErrorCode::kJob, fmt::format("cannot start {}", program));
  std::string text;
  char piece[4096];
  for (size_t count; (count = std::fread(piece, 1, sizeof(piece), pipe)) > 0;) text.append(piece, count);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(ErrorCode::kJob, fmt::format("{} failed", command), text.substr(0, 2000));
  }
  return text;
}

// The last line that is a JSON object.
nlohmann::json LastObject(const std::string& program, const std::string& text) {
  nlohmann::json found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('{')) continue;
    nlohmann::json one = nlohmann::json::parse(line, nullptr, false);
    if (one.is_object()) found = std::move(one);
  }
  if (found.is_null()) throw Error(ErrorCode::kJob, fmt::format("{} printed no result", program), text.substr(0, 2000));
  return found;
}

}  // namespace

double LlamaPeer::Prefill(const std::string& model, int64_t tokens) const {
  if (bench_.empty()) return 0;
  const std::string arguments = fmt::format("-m {} -t {} -p {} -n 0 -r 2 -o jsonl", Quoted(model), threads_, tokens);
  return LastObject(bench_, OutputOf(bench_, arguments)).at("avg_ts").get<double>();
}

double LlamaPeer::Decode(const std::string& model, int steps) const {
  if (bench_.empty()) return 0;
  const std::string arguments =
      fmt::format("-m {} -t {} -p 0 -n {} -d 128 -r 1 -o jsonl", Quoted(model), threads_, steps);
  return LastObject(bench_, OutputOf(bench_, arguments)).at("avg_ts").get<double>();
}

double LlamaPeer::DecodeMany(const std::string& model, int streams, int steps) const {
  if (batched_.empty()) return 0;
  const std::string arguments =
      fmt::format("-m {} -t {} -c {} -b 2048 -ub 512 -npp 128 -ntg {} -npl {} --output-format jsonl", Quoted(model),
                  threads_, streams * (128 + steps + 16), steps, streams);
  return LastObject(batched_, OutputOf(batched_, arguments)).at("speed_tg").get<double>();
}

}  // namespace octavo::bench
