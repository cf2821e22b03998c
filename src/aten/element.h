// Element types of the three worlds that meet here: c10::ScalarType, hlo::Elem, pjrt::ElementType.
#pragma once

#include <c10/core/ScalarType.h>

#include "hlo/type.h"
#include "pjrt/element.h"

namespace tpupilot::aten {

// Raises with the dtype's name if the device has no such element type.
hlo::Elem elem_of(c10::ScalarType dtype);
bool has_elem(c10::ScalarType dtype);
c10::ScalarType dtype_of(hlo::Elem elem);
pjrt::ElementType pjrt_type_of(hlo::Elem elem);

}  // namespace tpupilot::aten
