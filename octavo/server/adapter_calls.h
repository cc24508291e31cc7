// The calls that load and unload LoRA adapters while the server runs, in vLLM's form: POST /v1/load_lora_adapter
// {"lora_name", "lora_path"} and /v1/unload_lora_adapter {"lora_name"}. Off unless the operator names a folder, and
// nothing outside of that is ever looked at. Loads run one after the other on a thread of their own: streams, and
// requests that begin meanwhile, do not wait for them. Used by api.h.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "octavo/engine/service.h"
#include "octavo/server/api_options.h"
#include "octavo/server/http.h"

namespace octavo::server {

class AdapterCalls {
 public:
  // Throws what AdapterRoot does. The service must outlive this.
  AdapterCalls(const engine::Service& service, AdapterControl control);
  // Finishes the load that runs; those that wait are not begun.
  ~AdapterCalls();

  // Both throw ApiError and engine::Busy, or answer.
  void Load(const std::shared_ptr<Exchange>& exchange);
  void Unload(const std::shared_ptr<Exchange>& exchange);

 private:
  void RequireOn() const;
  HttpResponse LoadNow(const std::string& name, const std::filesystem::path& folder) const;
  std::string WithoutRoot(std::string message) const;
  void Run();

  const engine::Service& service_;
  const AdapterControl control_;
  std::filesystem::path root_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ended_ = false;
  std::thread thread_;
};

// The canonical path of an adapter_folder. A usage Error for a folder that is none.
std::filesystem::path AdapterRoot(const std::filesystem::path& folder);

// The folder inside `root` (a canonical path) that a request means: relative, or absolute below it. Throws ApiError 400
// for anything else, whatever links lie on the way, and 404 when there is no such folder.
std::filesystem::path AdapterFolder(const std::filesystem::path& root, const std::string& path);

}  // namespace octavo::server
