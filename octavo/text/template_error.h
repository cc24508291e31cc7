// The error of a chat template: where it happened and what the reference engine (jinja2 under Python) calls it, so that
// callers can tell a template that refuses a conversation from one that is broken.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::text {

class TemplateError : public Error {
 public:
  // `line` 0: not at a place of the template. `detail` is the reference engine's message. `shown` is ours, if it can
  // say more; `excerpt` the source at the place.
  TemplateError(ErrorCode code, std::string kind, std::string detail, int line, const std::string& shown = "",
                const std::string& excerpt = "")
      : Error(code,
              (line > 0 ? fmt::format("chat template line {}: ", line) : std::string("chat template: ")) +
                  (shown.empty() ? detail : shown),
              excerpt.empty() ? "" : "at: " + excerpt),
        kind_(std::move(kind)),
        detail_(std::move(detail)),
        line_(line) {}

  // TemplateError (raise_exception), TemplateSyntaxError, UndefinedError, SecurityError, TypeError, ...
  // LimitError when a bound of RenderLimits was hit.
  const std::string& kind() const { return kind_; }
  const std::string& detail() const { return detail_; }
  int line() const { return line_; }

 private:
  std::string kind_;
  std::string detail_;
  int line_;
};

}  // namespace octavo::text
