// Files as text, and SHA-256 as lower-case hex.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tpupilot::evidence {

// SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  std::string hex();  // ends it

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string sha256_of(const nlohmann::json& value);  // of its compact text, keys sorted
std::string sha256_of_file(const std::filesystem::path& file,
                           std::uintmax_t first_bytes = UINTMAX_MAX);  // "" if unreadable

std::string read_text(const std::filesystem::path& file);  // Error (Usage) if unreadable

}  // namespace tpupilot::evidence
