#include "octavo/cli/doctor_checks.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/cli/chat_input.h"
#include "octavo/engine/serving_model.h"
#include "octavo/text/chat_template.h"

namespace octavo {
namespace {

// An error's lines as one.
std::string OneLine(const Error& error) {
  std::string text = error.what();
  std::ranges::replace(text, '\n', ';');
  return text;
}

// As `octavo serve` finds and checks templates: one that is not understood keeps it from starting.
Finding TemplateFinding(const engine::ServingOptions& options, const engine::ServingModel& model) {
  text::ChatTemplateFiles files;
  try {
    files = FindChatTemplates(options.tokenizer_path, model.stored().tokenizer, options.path, "");
  } catch (const Error& error) {
    return {Health::kWarn, "template", fmt::format("{}: completions only", error.message())};
  }
  try {
    for (const auto& entry : files.templates) text::ChatTemplate::Parse(entry.second);
  } catch (const Error& error) {
    return {Health::kFail, "template", OneLine(error)};
  }
  return {Health::kOk, "template", "understood"};
}

class Socket {
 public:
  explicit Socket(int file) : file_(file) {}
  ~Socket() {
    if (file_ >= 0) ::close(file_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int file() const { return file_; }

 private:
  int file_;
};

int Connect(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  const timeval patience{5, 0};
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int file = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (file < 0) continue;
    ::setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (::connect(file, one->ai_addr, one->ai_addrlen) == 0) return file;
    ::close(file);
  }
  return -1;
}

// Host and port of HOST:PORT or [ADDRESS]:PORT.
std::pair<std::string, std::string> Split(const std::string& place) {
  const size_t end = place.starts_with('[') ? place.find(']') : 0;
  const size_t colon = end == std::string::npos ? end : place.find(':', end);
  const std::string host = place.substr(0, colon);
  return {host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host,
          colon == std::string::npos ? "80" : place.substr(colon + 1)};
}

// What a stranger sent, fit for a terminal: one line, without what a terminal would obey.
std::string Shown(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

// The beginning of the answer to GET /health, as far as it has come after five seconds.
std::string AskForHealth(int file, const std::string& host) {
  const std::string request = fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", host);
  if (::send(file, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return "";
  std::string answer;
  char buffer[1024];
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (answer.size() < 4096 && std::chrono::steady_clock::now() < end) {
    const ssize_t got = ::recv(file, buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

}  // namespace

std::vector<Finding> ModelFindings(const std::string& path, const Args& args) {
  engine::ServingOptions options;
  options.path = path;
  options.threads = args.Threads();
  options.tokenizer_path = args.Text("tokenizer_path", "");
  std::vector<Finding> findings;
  try {
    const auto model = engine::ServingModel::Open(options);
    findings.push_back({Health::kOk, "model", model->Describe()});
    for (const std::string& note : model->loaded().notes) findings.push_back({Health::kWarn, "model", note});
    const std::string own = model->stored().tokenizer.string();
    const std::string tokenizer = options.tokenizer_path.empty() ? own : options.tokenizer_path;
    findings.push_back({Health::kOk, "tokenizer", tokenizer.empty() ? "the model's own" : tokenizer});
    findings.push_back(TemplateFinding(options, *model));
  } catch (const Error& error) {
    findings.push_back({Health::kFail, "model", OneLine(error)});
  }
  return findings;
}

Finding ServerFinding(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  std::string place = url.starts_with(kScheme) ? url.substr(kScheme.size()) : url;
  if (place.empty() || place.find("://") != std::string::npos) {
    return {Health::kFail, "server", fmt::format("url='{}': expected http://HOST:PORT", url)};
  }
  place = place.substr(0, place.find('/'));
  const auto parts = Split(place);
  const Socket socket(Connect(parts.first, parts.second));
  if (socket.file() < 0) return {Health::kFail, "server", fmt::format("nothing answers at {}", place)};
  const std::string answer = AskForHealth(socket.file(), place);
  if (!answer.starts_with("HTTP/1.") || answer.size() < 12) {
    return {Health::kFail, "server", fmt::format("{} did not answer GET /health within 5 s", place)};
  }
  const std::string status = answer.substr(9, 3);
  const size_t body = answer.find("\r\n\r\n");
  const std::string text = body == std::string::npos ? "" : answer.substr(body + 4);
  return {status == "200" ? Health::kOk : Health::kFail, "server",
          fmt::format("{} answers /health with {} {}", place, Shown(status), Shown(text))};
}

}  // namespace octavo
