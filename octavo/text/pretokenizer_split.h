// Cutting a piece of text at matches, with the five behaviours that tokenizer.json knows for the matched part. Used by
// pretokenizer.cc only.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "octavo/text/pretokenizer.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

// A stretch of text that is a match or lies between matches. A list of them covers the text.
struct Cut {
  size_t begin, end;
  bool match;
};

// What becomes of a match: the-final--countdown cut at '-' gives
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// From the name in the file. Throws a file Error.
SplitBehavior ReadBehavior(std::string_view name, std::string_view where);

// Appends the pieces of `text` that the cuts and the behaviour leave; empty ones vanish.
void PushCuts(const AlignedText& text, const std::vector<Cut>& cuts, SplitBehavior behavior, std::vector<Piece>& out);

// Cuts from a function that visits matches from left to right.
template <typename FindAll>
void CutsFromMatches(std::string_view text, std::vector<Cut>& cuts, FindAll find_all) {
  size_t done = 0;
  find_all([&](size_t begin, size_t end) {
    if (begin > done) cuts.push_back({done, begin, false});
    cuts.push_back({begin, end, true});
    done = end;
  });
  if (done < text.size()) cuts.push_back({done, text.size(), false});
}

// Each character for which matches(c) holds is a match of its own.
template <typename Matches>
void CutsFromChars(std::string_view text, Matches matches, std::vector<Cut>& cuts) {
  CutsFromMatches(text, cuts, [&](auto visit) {
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      const char* begin = at;
      if (matches(NextChar(at))) visit(static_cast<size_t>(begin - text.data()), static_cast<size_t>(at - text.data()));
    }
  });
}

// Replaces each piece that is no added token by what split(piece, out) makes of it.
template <typename SplitOne>
void SplitPieces(std::vector<Piece>& pieces, SplitOne split) {
  std::vector<Piece> out;
  out.reserve(pieces.size());
  for (Piece& piece : pieces) {
    if (piece.added_id >= 0) {
      out.push_back(std::move(piece));
      continue;
    }
    if (!piece.text.empty()) split(std::move(piece), out);
  }
  pieces = std::move(out);
}

}  // namespace octavo::text
