// The fields of the acceptance sheet. Every name is always there; what is not known is {"unknown": reason}.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace tpupilot::pilot {

class Context;

const std::vector<std::string_view>& field_names();
nlohmann::json fields_of(const Context& context);
bool is_unknown(const nlohmann::json& field);

}  // namespace tpupilot::pilot
