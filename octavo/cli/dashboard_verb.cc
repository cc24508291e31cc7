// octavo dashboard: a live page about runs.
#include <charconv>
#include <filesystem>
#include <mutex>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/cli/verbs.h"
#include "octavo/server/api_error.h"
#include "octavo/server/http_server.h"
#include "octavo/server/router.h"
#include "octavo/train/dashboard.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// The runs as last read; a run is read again when its files have changed.
class WatchedRuns {
 public:
  explicit WatchedRuns(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) runs_.push_back({folder, "", train::ReadRun(folder)});
  }

  // The view as HTML, and a name for what it shows.
  std::pair<std::string, std::string> View(const train::DashboardView& view, std::string_view query,
                                           const std::string* known) {
    const std::lock_guard lock(mutex_);
    std::string stamps(query);
    for (Watched& run : runs_) {
      const std::string stamp = Stamp(run.folder);
      if (stamp != run.stamp) {
        run.record = train::ReadRun(run.folder);
        run.stamp = stamp;
      }
      stamps += stamp;
    }
    const std::string etag = fmt::format("\"{}\"", DigestHex(std::as_bytes(std::span(stamps))));
    if (known != nullptr && *known == etag) return {"", etag};
    std::vector<train::RunRecord> records;
    for (const Watched& run : runs_) records.push_back(run.record);
    return {train::DashboardHtml(records, view), etag};
  }

 private:
  struct Watched {
    fs::path folder;
    std::string stamp;
    train::RunRecord record;
  };

  static std::string Stamp(const fs::path& folder) {
    std::string stamp = folder.string();
    for (const char* name : {"metrics.jsonl", "quant.jsonl", "config.yml", "checkpoints"}) {
      std::error_code error;
      const fs::path path = folder / name;
      const auto time = fs::last_write_time(path, error);
      if (error) continue;
      const uintmax_t size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
      stamp += fmt::format("|{}:{}:{}", name, size, time.time_since_epoch().count());
    }
    return stamp;
  }

  std::mutex mutex_;
  std::vector<Watched> runs_;
};

// x=step|tokens|time, smooth=0…0.99, log=0|1, heat=saturated|flushed|sqnr. Anything else is a usage error.
train::DashboardView ParseView(std::string_view query, std::optional<double> floor) {
  using Across = train::DashboardView::Across;
  train::DashboardView view;
  view.floor = floor;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(part.size(), equals + 1));
    if (name == "x" && (value == "step" || value == "tokens" || value == "time")) {
      view.across = value == "step" ? Across::kStep : value == "tokens" ? Across::kTokens : Across::kTime;
    } else if (name == "log" && (value == "0" || value == "1")) {
      view.log_loss = value == "1";
    } else if (name == "heat" && (value == "saturated" || value == "flushed" || value == "sqnr")) {
      using train::Heat;
      view.heat = value == "saturated" ? Heat::kSaturated : value == "flushed" ? Heat::kFlushed : Heat::kSqnr;
    } else if (name == "smooth") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), view.smoothing);
      if (error != std::errc() || end != value.data() + value.size() ||
          !(view.smoothing >= 0 && view.smoothing <= 0.99)) {
        ThrowUsage("smooth is from 0 to 0.99");
      }
    } else {
      ThrowUsage("the view has x=step|tokens|time, smooth=0…0.99, log=0|1 and heat=saturated|flushed|sqnr");
    }
  }
  return view;
}

int RunDashboard(const Args& args) {
  WatchedRuns runs({args.positionals().begin(), args.positionals().end()});
  std::optional<double> floor;
  if (args.Has("floor")) {
    double nats = 0;
    const std::string text = args.Text("floor", "");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nats);
    if (error != std::errc() || end != text.data() + text.size()) ThrowUsage("floor={} is not a number", text);
    floor = nats;
  }
  server::Router router{server::Access({})};
  router.AddFiles(server::DashboardFiles(), args.Text("web_dir", ""));
  router.Add({.method = "GET",
              .path = "/api/view",
              .answer =
                  [&runs, floor](const std::shared_ptr<server::Exchange>& exchange) {
                    const server::HttpRequest& request = exchange->request();
                    try {
                      const train::DashboardView view = ParseView(request.query, floor);
                      auto [html, etag] = runs.View(view, request.query, request.Find("if-none-match"));
                      server::HttpResponse response;
                      response.status = html.empty() ? 304 : 200;
                      response.content_type = "text/html; charset=utf-8";
                      response.body = std::move(html);
                      response.headers = {{"ETag", etag},
                                          {"Cache-Control", "no-store"},
                                          {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"}};
                      exchange->Send(std::move(response));
                    } catch (const std::exception& error) {
                      exchange->Send(server::ErrorResponse(error));
                    }
                  },
              .is_public = true});
  server::HttpOptions options;
  options.port = static_cast<int>(args.Int("port", 8081, 0, 65535));
  server::HttpServer http(options, router);
  http.OnSignal([&http](int count) {
    if (count == 1) http.Close();
    http.Stop();
  });
  fmt::print(stderr, "dashboard {}   {} {}   Ctrl-C ends it\n", http.url(), args.positionals().size(),
             args.positionals().size() == 1 ? "run" : "runs");
  if (args.Switch("json")) {
    fmt::print("{{\"event\":\"dashboard\",\"url\":\"{}\"}}\n", http.url());
    std::fflush(stdout);
  }
  http.Run();
  return 0;
}

}  // namespace

VerbSpec DashboardVerb() {
  return {.name = "dashboard",
          .synopsis = "RUN... [port=8081] [floor=NATS]",
          .summary = "a live page about runs: curves, settings, quantization health",
          .details =
              "The page follows metrics.jsonl and quant.jsonl of each run; several runs are drawn over each other.\n"
              "It is served to this machine only, and loads nothing from elsewhere. `octavo report` writes the same\n"
              "plots into a file.\n"
              "  octavo dashboard out/x\n"
              "  octavo dashboard out/int8 out/fp32 port=9000",
          .least_positionals = 1,
          .most_positionals = 12,
          .options = {{"port", "N", "default 8081; 0: any free one"},
                      {"floor", "NATS", "the entropy of the data, drawn under the loss"},
                      {"web_dir", "DIR", "reads the page's files there at every request, for who writes pages"}},
          .run = RunDashboard};
}

}  // namespace octavo
