// octavo report: one HTML file about a run.
#include <filesystem>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/cli/verbs.h"
#include "octavo/train/report.h"
#include "octavo/train/terminal_plot.h"

namespace octavo {
namespace {

// A report takes the place of an older one; anything else stays unless --force is given.
void CheckReplaceable(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) return;
  std::string head(4096, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(stream.gcount()));
  if (train::LooksLikeReport(head)) return;
  throw Error(ErrorCode::kUsage, fmt::format("{} exists and is not a report", file.string()),
              "choose another name with -o FILE, or add --force to replace it");
}

int RunReport(const Args& args) {
  const std::filesystem::path run = args.positionals()[0];
  const train::RunRecord record = train::ReadRun(run);
  const std::filesystem::path file = args.Text("output", (run / "report.html").string());
  if (!args.Switch("force")) CheckReplaceable(file);
  PublishFile(file, train::ReportHtml(record));
  if (args.Switch("json")) {
    fmt::print("{{\"event\":\"report\",\"path\":\"{}\"}}\n", file.string());
    return 0;
  }
  const auto loss = record.train.find("learning/loss");
  if (args.Switch("plot") && loss != record.train.end()) fmt::print("{}", train::TerminalPlot(loss->second));
  fmt::print("report    {}   {} bytes\n", file.string(), std::filesystem::file_size(file));
  return 0;
}

}  // namespace

VerbSpec ReportVerb() {
  return {.name = "report",
          .synopsis = "RUN [-o FILE.html] [--plot]",
          .summary = "one self-contained HTML page: loss, rate, throughput, quantization health",
          .details =
              "Without -o the page is RUN/report.html. It loads nothing from elsewhere and works from a file.\n"
              "  octavo report out/x\n"
              "  octavo report out/x -o x.html --plot",
          .least_positionals = 1,
          .most_positionals = 1,
          .options = {{"output", "FILE", "where the page goes (-o FILE)"},
                      {"plot", "", "draw the loss in the terminal too"},
                      {"force", "", "replace a file that is not a report"}},
          .run = RunReport};
}

}  // namespace octavo
