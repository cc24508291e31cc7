#include "octavo/server/adapter_calls.h"

#include <algorithm>
#include <utility>

#include "octavo/engine/adapters.h"
#include "octavo/server/api_error.h"
#include "octavo/server/fields.h"

namespace octavo::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPath = 4096, kMostWaiting = 16;

// Whether `path` is `root` or below it, by their parts; neither has dots.
bool IsInside(const fs::path& root, const fs::path& path) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

[[noreturn]] void ThrowOutside() {
  throw ApiError(400, "invalid_value", "lora_path",
                 "lora_path: expected a folder inside of the server's adapter_folder, without '..'");
}

std::string Need(Fields& fields, std::string_view name) {
  const std::string value = fields.Text(name).value_or("");
  if (value.empty()) ThrowInvalid(name, "expected a string that is not empty");
  return value;
}

// Here a field without a meaning is always an error: who believes that it had one has loaded something else.
void RefuseUnread(const Fields& fields) {
  const std::vector<std::string> unread = fields.Unread();
  if (!unread.empty()) throw ApiError(400, "unknown_field", unread[0], fmt::format("unknown field '{}'", unread[0]));
}

HttpResponse Conflict(std::string_view code, std::string_view param, const std::string& message) {
  HttpResponse response = ErrorResponse(409, code, param, message);
  response.headers.emplace_back("x-should-retry", "false");  // clients repeat a 409; it would be the same again
  return response;
}

// vLLM's words, which scripts look for.
HttpResponse Success(const std::string& name, std::string_view what) {
  return {.content_type = "text/plain; charset=utf-8",
          .body = fmt::format("Success: LoRA adapter '{}' {} successfully.", name, what)};
}

}  // namespace

fs::path AdapterRoot(const fs::path& folder) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error || !fs::is_directory(root, error)) {
    throw Error(ErrorCode::kUsage, fmt::format("adapter_folder={} is no folder", folder.string()),
                "name the folder in which adapter folders lie");
  }
  return root;
}

fs::path AdapterFolder(const fs::path& root, const std::string& path) {
  if (path.size() > kMostPath || path.find('\0') != std::string::npos) ThrowOutside();
  const fs::path given(path);
  if (std::ranges::find(given, fs::path("..")) != given.end()) ThrowOutside();
  // By its text first: what lies elsewhere is not even looked for.
  const fs::path whole = (root / given).lexically_normal();
  if (!IsInside(root, whole)) ThrowOutside();
  std::error_code error;
  const fs::path folder = fs::canonical(whole, error);
  if (!error && !IsInside(root, folder)) ThrowOutside();
  if (error || !fs::is_directory(folder, error)) {
    throw ApiError(404, "adapter_not_found", "lora_path", fmt::format("there is no adapter folder '{}'", path));
  }
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path file = fs::canonical(folder / name, error);
    if (!error && !IsInside(root, file)) ThrowOutside();
  }
  return folder;
}

AdapterCalls::AdapterCalls(const engine::Service& service, AdapterControl control)
    : service_(service), control_(std::move(control)) {
  if (control_.folder.empty()) return;
  root_ = AdapterRoot(control_.folder);
  thread_ = std::thread([this] { Run(); });
}

AdapterCalls::~AdapterCalls() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AdapterCalls::RequireOn() const {
  if (!root_.empty()) return;
  throw ApiError(404, "", "",
                 "this server changes no adapters on request; it would if started with adapter_folder=DIR");
}

void AdapterCalls::Load(const std::shared_ptr<Exchange>& exchange) {
  RequireOn();
  Fields fields(ParseBody(exchange->request().body));
  const std::string name = Need(fields, "lora_name"), path = Need(fields, "lora_path");
  RefuseUnread(fields);
  const fs::path folder = AdapterFolder(root_, path);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) {
      throw engine::Busy(fmt::format("{} adapters are waiting to be loaded", waiting_.size()), 2, false);
    }
    waiting_.emplace_back([this, exchange, name, folder] {
      exchange->Post([exchange, response = LoadNow(name, folder)] { exchange->Send(response); });
    });
  }
  changed_.notify_all();
}

HttpResponse AdapterCalls::LoadNow(const std::string& name, const fs::path& folder) const {
  const auto loaded = static_cast<int>(service_.Models().size()) - 1;
  if (loaded >= control_.most_adapters) {
    return Conflict("too_many_adapters", "lora_name",
                    fmt::format("{} adapters are loaded, at most {}; unload one, or start with a larger max_adapters",
                                loaded, control_.most_adapters));
  }
  try {
    control_.load(name, folder);
  } catch (const engine::NameTaken& error) {
    return Conflict("name_taken", "lora_name", error.message());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kFile) return ErrorResponse(error);
    return ErrorResponse(400, "invalid_adapter", "lora_path", WithoutRoot(error.what()));
  } catch (const std::exception& error) {
    return ErrorResponse(error);
  }
  return Success(name, "added");
}

// Clients are told nothing about the machine's folders.
std::string AdapterCalls::WithoutRoot(std::string message) const {
  const std::string below = (root_ / "").string(), itself = root_.string();
  for (const auto& [text, instead] : {std::pair(below, ""), std::pair(itself, ".")}) {
    for (size_t at = 0; (at = message.find(text, at)) != std::string::npos;) message.replace(at, text.size(), instead);
  }
  return message;
}

void AdapterCalls::Unload(const std::shared_ptr<Exchange>& exchange) {
  RequireOn();
  Fields fields(ParseBody(exchange->request().body));
  const std::string name = Need(fields, "lora_name");
  RefuseUnread(fields);
  if (!control_.unload(name)) {
    throw ApiError(404, "adapter_not_found", "lora_name", fmt::format("no adapter '{}' is loaded", name));
  }
  exchange->Send(Success(name, "removed"));
}

void AdapterCalls::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
    if (ended_) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace octavo::server
