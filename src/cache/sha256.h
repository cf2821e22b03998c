// SHA-256, over OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tpupilot::cache {

using Digest = std::array<unsigned char, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  void add_field(std::string_view bytes);  // with its length before it, so that fields cannot run into each other
  Digest finish();                         // once

 private:
  evp_md_ctx_st* context_;
};

std::string hex(const Digest& digest);
std::optional<Digest> sha256_of_file(const std::string& path);  // nothing if it cannot be read

}  // namespace tpupilot::cache
