#include "octavo/text/unicode_normalize.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

struct Piece {
  char32_t c;
  int change;
  uint8_t combining_class;
};

// Composes the decomposed, ordered text that is pushed into it.
class Composer {
 public:
  explicit Composer(std::vector<CharChange>& out) : out_(out) {}

  void Push(Piece piece) {
    if (!has_starter_) {
      if (piece.combining_class != 0) {
        out_.push_back({piece.c, piece.change});
        return;
      }
      Start(piece);
      return;
    }
    // A mark composes with the starter unless a mark of the same or a higher class stands between them.
    const bool blocked = !marks_.empty() && last_class_ >= piece.combining_class;
    if (!blocked) {
      if (const char32_t composed = Compose(starter_.c, piece.c); composed != 0) {
        starter_ = {composed, starter_.change + piece.change - 1};
        return;
      }
    }
    if (piece.combining_class == 0) {
      Flush();
      Start(piece);
      return;
    }
    marks_.push_back({piece.c, piece.change});
    last_class_ = piece.combining_class;
  }

  void Flush() {
    if (has_starter_) out_.push_back(starter_);
    out_.insert(out_.end(), marks_.begin(), marks_.end());
    marks_.clear();
    has_starter_ = false;
  }

 private:
  void Start(Piece piece) {
    starter_ = {piece.c, piece.change};
    has_starter_ = true;
  }

  std::vector<CharChange>& out_;
  CharChange starter_{};
  bool has_starter_ = false;
  std::vector<CharChange> marks_;  // marks after the starter that did not compose
  uint8_t last_class_ = 0;
};

// Puts a run of marks into canonical order and passes it on.
template <typename Sink>
void Drain(std::vector<Piece>& pending, Sink&& sink) {
  if (pending.size() > 1) {
    std::stable_sort(pending.begin(), pending.end(),
                     [](const Piece& a, const Piece& b) { return a.combining_class < b.combining_class; });
  }
  for (const Piece& piece : pending) sink(piece);
  pending.clear();
}

template <typename Sink>
void DecomposeText(std::string_view text, bool compatible, Sink&& sink) {
  std::vector<Piece> pending;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char32_t c = NextChar(at);
    char32_t parts[kMaxDecomposition];
    const int count = Decompose(c, compatible, parts);
    for (int i = 0; i < count; ++i) {
      const uint8_t combining_class = CombiningClass(parts[i]);
      if (combining_class == 0) Drain(pending, sink);
      pending.push_back({parts[i], i == 0 ? 0 : 1, combining_class});
    }
  }
  Drain(pending, sink);
}

}  // namespace

void Normalize(std::string_view text, NormalForm form, std::vector<CharChange>& out) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  out.reserve(out.size() + text.size());
  if (form == NormalForm::kNfd || form == NormalForm::kNfkd) {
    DecomposeText(text, compatible, [&](const Piece& piece) { out.push_back({piece.c, piece.change}); });
    return;
  }
  Composer composer(out);
  DecomposeText(text, compatible, [&](const Piece& piece) { composer.Push(piece); });
  composer.Flush();
}

std::string NfcText(std::string_view text) {
  const CharClasses& classes = CharClasses::Table();
  std::string out;
  out.reserve(text.size());
  std::vector<CharChange> changes;
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  const char* copied = at;   // everything before is in `out`
  const char* starter = at;  // the last character that composes with nothing before it
  while (at < end) {
    const char* here = at;
    const char32_t c = NextChar(at);
    const bool stands_alone = c < 0x300 || ((classes(c) & kNfcChecked) == 0 && CombiningClass(c) == 0);
    if (stands_alone) {
      starter = here;
      continue;
    }
    // From the last starter to the next one everything may change together.
    while (at < end) {
      const char* next = at;
      const char32_t following = NextChar(next);
      if (following < 0x300 || ((classes(following) & kNfcChecked) == 0 && CombiningClass(following) == 0)) break;
      at = next;
    }
    out.append(copied, starter);
    changes.clear();
    Normalize({starter, static_cast<size_t>(at - starter)}, NormalForm::kNfc, changes);
    for (const CharChange& change : changes) AppendUtf8(change.c, out);
    copied = starter = at;
  }
  out.append(copied, end);
  return out;
}

bool IsNfcForSure(std::string_view text) {
  const CharClasses& classes = CharClasses::Table();
  const char* at = text.data();
  const char* const end = at + text.size();
  uint8_t last_class = 0;
  while (at < end) {
    if (static_cast<unsigned char>(*at) < 0xCC) {  // below U+0300 every character is stable
      at += LeadLength(static_cast<unsigned char>(*at));
      last_class = 0;
      continue;
    }
    const char32_t c = NextChar(at);
    const uint16_t bits = classes(c);
    if ((bits & kNfcChecked) != 0) return false;
    const uint8_t combining_class = (bits & kMark) != 0 ? CombiningClass(c) : uint8_t{0};
    if (combining_class != 0 && last_class > combining_class) return false;
    last_class = combining_class;
  }
  return true;
}

}  // namespace octavo::text
