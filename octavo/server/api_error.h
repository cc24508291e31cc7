// What goes wrong with a request, in the form that OpenAI's clients read: status, type, code, the field at fault.
// Thrown by whoever reads a request, caught at the door of the route.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/server/http.h"

namespace octavo::server {

class ApiError : public Error {
 public:
  ApiError(int status, std::string code, std::string param, std::string message)
      : Error(ErrorCode::kUsage, std::move(message)),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& error_code() const { return code_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string code_, param_;
};

// {"message", "type", "param", "code"} with the type that belongs to the status; empty param and code are null.
std::string ErrorJson(int status, std::string_view code, std::string_view param, std::string_view message);

// The whole answer, with the headers that tell clients whether to try again.
HttpResponse ErrorResponse(int status, std::string_view code, std::string_view param, std::string_view message);

// One that passes: with a Retry-After of 1 to 60 seconds, as long as clients should ever be told to wait.
HttpResponse WaitResponse(int status, std::string_view code, std::string_view message, double seconds);

// For anything that was caught: ApiError, engine::Busy, usage errors (400), the rest (500).
HttpResponse ErrorResponse(const std::exception& error);

}  // namespace octavo::server
