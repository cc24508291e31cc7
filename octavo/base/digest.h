// XXH3-128 digests: proof that bytes are the bytes that were written. They find damage; they do not stop a forger.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace octavo {

// A digest over bytes that arrive in pieces. However they are cut, the result is the same.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void Update(std::span<const std::byte> bytes);

  // 32 lower-case hexadecimal digits (XXH128's canonical order) of all bytes so far; more may follow.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string DigestHex(std::span<const std::byte> bytes);

}  // namespace octavo
