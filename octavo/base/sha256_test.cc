#include "octavo/base/sha256.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

// The examples of FIPS 180-4 and of NIST's validation suite.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The padding changes form at 55, 56, 63 and 64 bytes: digests of that many zero bytes, from another implementation.
TEST(Sha256, EdgesOfThePadding) {
  EXPECT_EQ(Sha256Hex(std::string(55, '\0')), "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  EXPECT_EQ(Sha256Hex(std::string(56, '\0')), "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  EXPECT_EQ(Sha256Hex(std::string(63, '\0')), "c7723fa1e0127975e49e62e753db53924c1bd84b8ac1ac08df78d09270f3d971");
  EXPECT_EQ(Sha256Hex(std::string(64, '\0')), "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

TEST(Sha256, ComparesEveryByte) {
  const Sha256Digest digest = Sha256("key");
  EXPECT_TRUE(EqualInConstantTime(digest, Sha256("key")));
  for (size_t i = 0; i < digest.size(); ++i) {
    Sha256Digest other = digest;
    other[i] ^= 1;
    EXPECT_FALSE(EqualInConstantTime(digest, other)) << i;
  }
}

}  // namespace
}  // namespace octavo
