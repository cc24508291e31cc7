#include "octavo/server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace octavo::server {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string HttpDate() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[64];
  // The names of days and months are fixed, so not strftime, which follows the locale.
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const int length =
      std::snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[parts.tm_wday], parts.tm_mday,
                    kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return Lower(x) == Lower(y); });
}

const std::string* HttpRequest::Find(std::string_view name) const {
  for (const auto& header : headers) {
    if (EqualIgnoringCase(header.first, name)) return &header.second;
  }
  return nullptr;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::optional<std::string> DecodePercent(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size() || HexDigit(text[i + 1]) < 0 || HexDigit(text[i + 2]) < 0) return std::nullopt;
    const int value = HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]);
    if (value == 0) return std::nullopt;
    result += static_cast<char>(value);
    i += 2;
  }
  return result;
}

std::string LocalTarget(std::string target, std::string_view host) {
  constexpr std::string_view kScheme = "http://";
  if (!host.empty() && EqualIgnoringCase(std::string_view(target).substr(0, kScheme.size()), kScheme)) {
    const size_t end = std::min(target.find_first_of("/?", kScheme.size()), target.size());
    if (!EqualIgnoringCase(std::string_view(target).substr(kScheme.size(), end - kScheme.size()), host)) return "";
    target.erase(0, end);
    if (!target.starts_with('/')) target.insert(0, "/");
  }
  return target.starts_with('/') ? target : "";
}

std::string ResponseHead(const HttpResponse& response, const Headers& extra, int64_t length, bool chunked, bool close) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: octavo\r\n", response.status,
                                 StatusText(response.status), HttpDate());
  if (response.status != 204 && response.status != 304) {
    head += fmt::format("Content-Type: {}\r\n", response.content_type);
    if (length >= 0) head += fmt::format("Content-Length: {}\r\n", length);
    if (chunked) head += "Transfer-Encoding: chunked\r\n";
  }
  head += "X-Content-Type-Options: nosniff\r\n";
  for (const Headers* headers : {&response.headers, &extra}) {
    for (const auto& header : *headers) {
      // A value that would end its line would begin another header.
      if (header.second.find_first_of("\r\n") != std::string::npos) continue;
      head += fmt::format("{}: {}\r\n", header.first, header.second);
    }
  }
  head += close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n";
  return head;
}

}  // namespace octavo::server
