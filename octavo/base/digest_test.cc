#include "octavo/base/digest.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace octavo {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Digest, KnownValues) {
  // What the xxhsum program prints (xxh128sum) for these bytes.
  EXPECT_EQ(DigestHex(Bytes("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(DigestHex(Bytes("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, PiecesDoNotMatter) {
  std::vector<std::byte> data(5000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  const std::string whole = DigestHex(data);
  EXPECT_EQ(whole.size(), 32u);
  for (size_t piece : {size_t{1}, size_t{7}, size_t{256}, size_t{4999}, size_t{5000}}) {
    Digest digest;
    for (size_t at = 0; at < data.size(); at += piece) {
      digest.Update(std::span(data).subspan(at, std::min(piece, data.size() - at)));
      digest.Update({});
    }
    EXPECT_EQ(digest.Hex(), whole) << piece;
    EXPECT_EQ(digest.Hex(), whole) << "asking twice";
  }
  data[4321] ^= std::byte{1};
  EXPECT_NE(DigestHex(data), whole);
}

TEST(Digest, Moves) {
  Digest first;
  first.Update(Bytes("a"));
  Digest second = std::move(first);
  second.Update(Bytes("bc"));
  EXPECT_EQ(second.Hex(), DigestHex(Bytes("abc")));
}

}  // namespace
}  // namespace octavo
