#include "evidence/digest.h"

#include <openssl/evp.h>

#include <array>
#include <fstream>

#include "evidence/errors.h"

namespace tpupilot::evidence {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    throw Error("[sha256] the crypto library has no SHA-256.", Exit::Internal);
  }
}

void Sha256::add(std::string_view bytes) {
  if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1)
    throw Error("[sha256] the crypto library failed.", Exit::Internal);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) != 1)
    throw Error("[sha256] the crypto library failed.", Exit::Internal);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

std::string sha256_of(const nlohmann::json& value) {
  const std::string text = value.dump();
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error("[read] cannot read " + file.string() + ".");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string sha256_of_file(const std::filesystem::path& file, std::uintmax_t first_bytes) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return "";
  Sha256 hash;
  std::array<char, 1 << 16> buffer;
  while (first_bytes > 0) {
    in.read(buffer.data(), static_cast<std::streamsize>(std::min<std::uintmax_t>(buffer.size(), first_bytes)));
    const auto got = static_cast<size_t>(in.gcount());
    if (got == 0) break;
    hash.add({buffer.data(), got});
    first_bytes -= got;
  }
  return hash.hex();
}

}  // namespace tpupilot::evidence
