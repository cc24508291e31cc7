#include "octavo/data/plain_file.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"

namespace octavo::data {
namespace {

constexpr size_t kChunk = 256 << 10;

// The scratch file that takes what was unpacked.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& path) : file_(std::fopen(path.c_str(), "wb")) {
    if (!file_) Fail();
  }
  void Write(const void* data, size_t size) {
    if (std::fwrite(data, 1, size, file_.get()) != size) Fail();
  }
  void Close() {
    if (std::fclose(file_.release()) != 0) Fail();
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] static void Fail() {
    throw Error(ErrorCode::kJob,
                fmt::format("cannot unpack data into {}: {}", std::filesystem::temp_directory_path().string(),
                            std::strerror(errno)),
                "free some space, set TMPDIR to a larger disk, or unpack the files yourself");
  }
  std::unique_ptr<std::FILE, Closer> file_;
};

[[noreturn]] void FailTruncated(const std::string& name, uint64_t written) {
  throw Error(ErrorCode::kFile, fmt::format("{} ends in the middle: {} bytes could be unpacked", name, written),
              "the file is truncated; copy or download it again");
}

[[noreturn]] void FailDamaged(const std::string& name, const char* why, uint64_t at) {
  throw Error(ErrorCode::kFile, fmt::format("{} is damaged near byte {}: {}", name, at, why),
              "copy or download it again");
}

// One or more gzip members, one after the other.
void Gunzip(const std::string& name, std::span<const std::byte> packed, Scratch& out) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw Error(ErrorCode::kJob, "out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, inflateEnd);
  std::vector<unsigned char> buffer(kChunk);
  uint64_t written = 0;
  size_t at = 0;
  for (int result = Z_OK; at < packed.size() || result != Z_STREAM_END;) {
    if (result == Z_STREAM_END && inflateReset(&stream) != Z_OK) FailDamaged(name, "bad stream", at);
    if (at == packed.size()) FailTruncated(name, written);
    const size_t piece = std::min(packed.size() - at, kChunk);
    stream.next_in = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(packed.data() + at));
    stream.avail_in = static_cast<unsigned>(piece);
    do {
      stream.next_out = buffer.data();
      stream.avail_out = static_cast<unsigned>(buffer.size());
      result = inflate(&stream, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        FailDamaged(name, stream.msg != nullptr ? stream.msg : "not gzip data", at + piece - stream.avail_in);
      }
      const size_t fresh = buffer.size() - stream.avail_out;
      out.Write(buffer.data(), fresh);
      written += fresh;
    } while (result != Z_STREAM_END && stream.avail_out == 0);
    at += piece - stream.avail_in;
  }
}

void Unzstd(const std::string& name, std::span<const std::byte> packed, Scratch& out) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) throw Error(ErrorCode::kJob, "out of memory");
  std::vector<unsigned char> buffer(kChunk);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  uint64_t written = 0;
  for (size_t more = 1; in.pos < in.size || more != 0;) {
    ZSTD_outBuffer piece{buffer.data(), buffer.size(), 0};
    const size_t before = in.pos;
    more = ZSTD_decompressStream(stream.get(), &piece, &in);
    if (ZSTD_isError(more) != 0) FailDamaged(name, ZSTD_getErrorName(more), in.pos);
    out.Write(buffer.data(), piece.pos);
    written += piece.pos;
    if (in.pos == before && piece.pos == 0 && more != 0) FailTruncated(name, written);
  }
}

MappedFile Open(const std::filesystem::path& path, const std::string& packing) {
  MappedFile file(path);
  if (file.bytes().empty()) {
    throw Error(ErrorCode::kFile, fmt::format("{} is empty", path.string()), "expected text, JSON lines or tokens");
  }
  if (packing.empty()) return file;
  const TempFolder folder;
  const std::filesystem::path plain = folder / "plain";
  Scratch out(plain);
  (packing == ".gz" ? Gunzip : Unzstd)(path.string(), file.bytes(), out);
  out.Close();
  MappedFile unpacked(plain);
  if (unpacked.bytes().empty()) ThrowFile("{} is empty when unpacked", path.string());
  return unpacked;
}

std::string PackingOf(const std::filesystem::path& path) {
  const std::string last = path.extension().string();
  return last == ".gz" || last == ".zst" ? last : "";
}

}  // namespace

PlainFile::PlainFile(const std::filesystem::path& path)
    : name_(path.string()),
      extension_((PackingOf(path).empty() ? path : path.stem()).extension().string()),
      file_(Open(path, PackingOf(path))) {}

}  // namespace octavo::data
