// octavo report: one HTML file about a run.
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/cli/verbs.h"
#include "octavo/train/report.h"
#include "octavo/train/terminal_plot.h"

namespace octavo {
namespace {

int RunReport(const Args& args) {
  const std::filesystem::path run = args.positionals()[0];
  const train::RunRecord record = train::ReadRun(run);
  const std::filesystem::path file = args.Text("output", (run / "report.html").string());
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
                      {"plot", "", "draw the loss in the terminal too"}},
          .run = RunReport};
}

}  // namespace octavo
