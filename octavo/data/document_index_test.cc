#include "octavo/data/document_index.h"

#include <gtest/gtest.h>

#include <string>

namespace octavo::data {
namespace {

std::vector<std::string> All(const std::string& text, const std::string& separator, bool lines,
                             size_t most = DocumentIndex::kMostPlaces) {
  const DocumentIndex index(text, separator, lines, most);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < index.size(); ++i) {
    const DocumentRange range = index.At(i);
    documents.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return documents;
}

using Texts = std::vector<std::string>;

TEST(DocumentIndex, CutsAtSeparators) {
  EXPECT_EQ(All("a\nb\n\nc\n\n\n\n \n\nd\n", "\n\n", false), (Texts{"a\nb", "c", "d"}));
  EXPECT_EQ(All("a<|end|>b<|end|>", "<|end|>", false), (Texts{"a", "b"}));
  EXPECT_EQ(All("{1}\r\n\n{2}\n{3}", "", true), (Texts{"{1}", "{2}", "{3}"}));
  EXPECT_EQ(All("a\n\nb", "", false), (Texts{"a\n\nb"}));
  EXPECT_EQ(All("", "\n", false), Texts{});
}

TEST(DocumentIndex, LongDocumentsAreCutAtLinesAndNothingIsLost) {
  std::string text = "first\n\n";
  for (int i = 0; i < 9000; ++i) text += "line " + std::to_string(i) + "\n";
  text += "\n" + std::string(40'000, 'x') + "\n\n";
  for (int i = 0; i < 20'000; ++i) text += "\xc3\xa9";
  const DocumentIndex index(text, "\n\n", false);
  std::string joined;
  int firsts = 0, lasts = 0;
  for (int64_t i = 0; i < index.size(); ++i) {
    const DocumentRange range = index.At(i);
    EXPECT_LE(range.end - range.begin, kMostUnitBytes);
    EXPECT_NE(static_cast<unsigned char>(text[range.begin]) & 0xC0, 0x80);  // never inside a character
    joined += text.substr(range.begin, range.end - range.begin);
    firsts += range.first ? 1 : 0;
    lasts += range.last ? 1 : 0;
  }
  EXPECT_EQ(firsts, 4);
  EXPECT_EQ(lasts, 4);
  std::string expected = text;
  for (size_t at = expected.find("\n\n"); at != std::string::npos; at = expected.find("\n\n")) expected.erase(at, 2);
  EXPECT_EQ(joined, expected);
}

TEST(DocumentIndex, FewPlacesFindTheSameDocuments) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "document " + std::to_string(i) + (i % 3 == 0 ? "\n\n\n\n" : "\n\n");
  const Texts all = All(text, "\n\n", false);
  EXPECT_EQ(all.size(), 500u);
  for (const size_t most : {1u, 2u, 7u, 64u, 499u}) EXPECT_EQ(All(text, "\n\n", false, most), all) << most;
}

}  // namespace
}  // namespace octavo::data
