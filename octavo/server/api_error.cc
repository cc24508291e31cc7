#include "octavo/server/api_error.h"

#include <algorithm>
#include <cmath>

#include "octavo/engine/service.h"
#include "octavo/server/json_writer.h"

namespace octavo::server {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

void WriteText(JsonWriter& json, std::string_view key, std::string_view value) {
  json.Key(key);
  if (value.empty()) {
    json.Null();
  } else {
    json.String(value);
  }
}

}  // namespace

std::string ErrorJson(int status, std::string_view code, std::string_view param, std::string_view message) {
  JsonWriter json;
  json.BeginObject().Key("error").BeginObject();
  json.Field("message", message).Field("type", TypeOf(status));
  WriteText(json, "param", param);
  WriteText(json, "code", code);
  json.EndObject().EndObject();
  return json.Take();
}

HttpResponse ErrorResponse(int status, std::string_view code, std::string_view param, std::string_view message) {
  HttpResponse response{.status = status, .body = ErrorJson(status, code, param, message) + "\n"};
  // Clients repeat a 500 twice; ours would be the same each time.
  if (status == 500) response.headers.emplace_back("x-should-retry", "false");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse WaitResponse(int status, std::string_view code, std::string_view message, double seconds) {
  HttpResponse response = ErrorResponse(status, code, "", message);
  const double wait = std::isfinite(seconds) ? std::clamp(std::ceil(seconds), 1.0, 60.0) : 60;
  response.headers.emplace_back("Retry-After", std::to_string(static_cast<int>(wait)));
  return response;
}

HttpResponse ErrorResponse(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) {
    return ErrorResponse(api->status(), api->error_code(), api->param(), api->what());
  }
  if (const auto* busy = dynamic_cast<const engine::Busy*>(&error)) {
    return busy->stopping ? WaitResponse(503, "draining", busy->what(), busy->retry_seconds)
                          : WaitResponse(429, "queue_full", busy->what(), busy->retry_seconds);
  }
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours != nullptr && ours->code() == ErrorCode::kUsage) return ErrorResponse(400, "", "", ours->what());
  return ErrorResponse(500, "", "", error.what());
}

}  // namespace octavo::server
