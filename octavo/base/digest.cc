#include "octavo/base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

#include "octavo/base/check.h"

namespace octavo {
namespace {

std::string ToHex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Digest::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digest::Digest() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  OCTAVO_CHECK(XXH3_128bits_reset(state_->xxh) == XXH_OK);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::Update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  OCTAVO_CHECK(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

std::string Digest::Hex() const { return ToHex(XXH3_128bits_digest(state_->xxh)); }

std::string DigestHex(std::span<const std::byte> bytes) { return ToHex(XXH3_128bits(bytes.data(), bytes.size())); }

}  // namespace octavo
