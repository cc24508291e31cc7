// Reads calls of tools while a model writes them: a call's name as soon as its arguments begin, then the arguments
// piece by piece, in the model's own words. It knows the forms that models are taught: {"name": …, "arguments": {…}},
// with "parameters" too and other texts beside the name, several of them in a list or one after the other, and
// name[ARGS]{…}. What begins otherwise is left to the functions of tool_calls.h, which see the whole text. Used by
// output_parser.h.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/server/tool_calls.h"

namespace octavo::server {

class CallStream {
 public:
  struct Options {
    bool bare_names = false;                       // name[ARGS]{…} is a call
    bool any_value = false;                        // arguments may be any value, not only an object
    const std::set<std::string>* names = nullptr;  // a call has one of these names; null: any name
  };
  enum class State : uint8_t {
    kOpen,   // more of a call may follow
    kOther,  // the text does not begin with a call; nothing was taken
    kEnded,  // what is left of the text is no call
  };

  explicit CallStream(const Options& options) : options_(options) {}

  // Takes what is decided from the front of `text` and appends pieces: one with a name begins a call, one without goes
  // on with its arguments. At the end of an answer (`last`) what is undecided is no call.
  State Read(std::string& text, bool last, std::vector<ToolCall>& pieces);

 private:
  enum class Part : uint8_t { kHead, kArguments, kTail, kBetween };

  State ReadHead(std::string& text, bool last, std::vector<ToolCall>& pieces);
  void ReadArguments(std::string& text, std::vector<ToolCall>& pieces);
  void ReadTail(std::string& text);
  // The bytes of `text` that belong to the value that began before or begins with it; `ended` when it ends there.
  size_t Scan(std::string_view text, bool& ended);

  Options options_;
  Part part_ = Part::kHead;
  bool began_ = false;  // a call
  bool list_ = false;   // [ came before the first call
  bool bare_ = false;   // the call has no braces of its own
  // Of the value that is being read: open brackets, whether in a string, after a backslash, in a number or word.
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, in_word_ = false;
};

}  // namespace octavo::server
