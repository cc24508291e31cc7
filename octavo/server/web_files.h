// Files of a web page that are part of the binary, compressed. Served by Router::AddFiles; the build makes the tables
// from the folder web/.
#pragma once

#include <span>
#include <string_view>

namespace octavo::server {

struct WebFile {
  std::string_view path;          // "/", "/chat.js"
  std::string_view content_type;  // "text/html; charset=utf-8"
  std::string_view gzip;          // the bytes, compressed
  std::string_view etag;          // with its quotes
};

// The chat page, and the page of `octavo dashboard`.
std::span<const WebFile> WebFiles();
std::span<const WebFile> DashboardFiles();

}  // namespace octavo::server
