// Takes apart what a chat model writes, while it is written: the reasoning block, ordinary text, calls of tools. Text
// that may still become a tag is held back; what looked like a call and is none comes out as text, so nothing is lost.
// A call is one as soon as its name is known and its arguments begin; they are given as the model wrote them, and are
// cut where its answer was.
// One per choice of an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/server/call_stream.h"
#include "octavo/server/tool_calls.h"

namespace octavo::server {

struct OutputForm {
  ToolForm tools = ToolForm::kNone;
  bool only_call = false;                  // the answer is constrained to be one call
  bool one_call = false;                   // calls after the first are left out: parallel_tool_calls=false
  bool reasoning = false;                  // the model may begin with <think>…</think>
  bool reasoning_open = false;             // the prompt ended with <think>
  std::optional<int32_t> tool_token = {};  // a special token that begins calls; it leaves no text
  std::set<std::string> names = {};        // of the tools
};

struct OutputDelta {
  std::string content, reasoning;
  std::vector<ToolCall> calls;  // with a name: one begins; without: more arguments of the last one
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

class OutputParser {
 public:
  explicit OutputParser(OutputForm form);
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  OutputDelta Push(std::string_view text, std::span<const int32_t> tokens);
  OutputDelta Finish();

 private:
  enum class Stage : uint8_t { kStart, kReasoning, kContent, kCall };

  void Run(OutputDelta& out, bool last);
  bool RunStart(bool last);
  bool RunReasoning(OutputDelta& out, bool last);
  bool RunContent(OutputDelta& out, bool last);
  bool RunCall(OutputDelta& out, bool last);
  void BeginCalls();
  bool RunWholeCall(OutputDelta& out, bool last);  // of a form that cannot be read while it is written
  bool AddWhole(std::optional<std::vector<ToolCall>> calls, OutputDelta& out);
  void AddPieces(std::vector<ToolCall> pieces, OutputDelta& out);

  OutputForm form_;
  Stage stage_ = Stage::kStart;
  std::string pending_;
  bool skip_space_ = false;          // before the next text of this stage
  bool content_began_ = false;       // text other than white space came before
  std::optional<CallStream> calls_;  // in kCall, unless the text has another form
  bool called_ = false;
  bool left_out_ = false;  // the call that is being read
};

}  // namespace octavo::server
