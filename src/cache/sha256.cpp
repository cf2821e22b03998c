#include "cache/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

namespace tpupilot::cache {
namespace {

void must(int ok) {
  if (ok != 1) throw std::runtime_error("[sha256] OpenSSL refuses to compute SHA-256; check its configuration");
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  must(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr));
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::add(std::string_view bytes) { must(EVP_DigestUpdate(context_, bytes.data(), bytes.size())); }

void Sha256::add_field(std::string_view bytes) {
  const uint64_t size = bytes.size();
  std::array<char, sizeof(size)> prefix{};
  std::memcpy(prefix.data(), &size, sizeof(size));
  add({prefix.data(), prefix.size()});
  add(bytes);
}

Digest Sha256::finish() {
  Digest digest{};
  unsigned int size = 0;
  must(EVP_DigestFinal_ex(context_, digest.data(), &size));
  return digest;
}

std::string hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<Digest> sha256_of_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  Sha256 hash;
  std::vector<char> block(size_t{1} << 20);
  ssize_t got = 0;
  while ((got = read(file, block.data(), block.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    hash.add({block.data(), static_cast<size_t>(got)});
  }
  close(file);
  if (got < 0) return std::nullopt;
  return hash.finish();
}

}  // namespace tpupilot::cache
