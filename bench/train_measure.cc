#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/train.h"
#include "octavo/base/error.h"

namespace octavo::bench {
namespace {

// Standard output of a command; its standard error goes on to ours.
std::string OutputOf(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorCode::kJob, "cannot make a pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) output.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  throw Error(ErrorCode::kJob, fmt::format("'{}' failed with status {}", fmt::join(command, " "),
                                           WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
}

}  // namespace

TrainMeasurement Measure(const std::vector<std::string>& command) {
  const std::string output = OutputOf(command);
  const size_t begin = output.rfind("\n{");
  const nlohmann::json json = nlohmann::json::parse(begin == std::string::npos ? output : output.substr(begin + 1));
  TrainMeasurement m;
  m.contender = json.value("contender", "");
  m.skipped = json.value("skipped", "");
  if (!m.skipped.empty()) return m;
  m.seconds = json.at("seconds").get<std::vector<double>>();
  m.peak_bytes = json.at("peak_bytes").get<double>();
  m.outside_share = json.value("outside_share", 0.0);
  m.attributed_share = json.value("attributed_share", 0.0);
  m.loss = json.value("loss", 0.0);
  m.profile = json.value("profile", "");
  if (json.contains("site_seconds")) {
    for (const auto& [site, seconds] : json["site_seconds"].items()) m.site_seconds[site] = seconds.get<double>();
  }
  if (json.contains("quantized_sites")) m.quantized_sites = json["quantized_sites"].get<std::vector<std::string>>();
  return m;
}

}  // namespace octavo::bench
