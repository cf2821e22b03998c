// The Python module tpupilot._C: what the device module and the compile entry need, and nothing with logic of its own.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/closed_ops.h"
#include "aten/counters.h"
#include "aten/errors.h"
#include "aten/generator.h"
#include "aten/precision.h"
#include "aten/program.h"
#include "aten/recorder.h"
#include "aten/runtime.h"
#include "ops/row.h"

namespace tpupilot::aten {
namespace {

namespace py = pybind11;

FallbackPolicy parse_policy(const std::string& text) {
  if (text == "error") return FallbackPolicy::Error;
  if (text == "warn") return FallbackPolicy::Warn;
  if (text == "allow") return FallbackPolicy::Allow;
  throw std::invalid_argument("[set_fallback] '" + text + "' is not a policy; one of error, warn, allow");
}

py::dict describe_plugin() {
  py::dict d;
  d["path"] = plugin_path();
  d["loaded"] = loaded();
  if (loaded()) {
    for (const auto& [name, value] : runtime_description()) d[py::str(name)] = value;
  }
  return d;
}

std::vector<std::pair<std::string, std::string>> op_rows() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const ops::Row& row : ops::rows()) {
    for (const std::string_view overload : row.overloads) rows.emplace_back(overload, row.remark);
  }
  return rows;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  register_rows();
  m.doc() = "The native part of tpupilot's device. Private: use torch.tpu.";
  m.def("configure", &configure, py::arg("plugin"), py::arg("site_packages"), py::arg("device_count"));
  m.def("initialize", [] { translated("initialize", [] { return &runtime(); }); });
  m.def("initialized", &loaded);
  m.def("in_bad_fork", &in_bad_fork);
  m.def("available", &available);
  m.def("device_count", &device_count);
  m.def("plugin", &describe_plugin);
  m.def("synchronize", [](int device) {
    const py::gil_scoped_release release;
    translated("synchronize", [&] { synchronize(static_cast<c10::DeviceIndex>(device)); });
  });
  m.def("memory_info", [](int device) {
    return translated("memory_info", [&] { return memory_info(static_cast<c10::DeviceIndex>(device)); });
  });
  m.def("counters", &counter_values);
  m.def("reset_counters", &reset_counters);
  m.def("fallbacks", &fallbacks_by_overload);
  m.def("signatures", &signatures_by_overload);
  m.def("set_fallback", [](const std::string& policy) { set_fallback_policy(parse_policy(policy)); });
  m.def("rows", &op_rows);
  m.def("rehearse_passes", &rehearse_passes, py::arg("passes"), py::arg("always"));
  m.def("default_generator", [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });

  py::class_<Recorder>(m, "Recorder")
      .def(py::init<const std::vector<at::Tensor>&>())
      .def("at_node", &Recorder::at_node)
      .def("finish", [](Recorder& r, const std::vector<at::Tensor>& outputs) {
        return translated("record", [&] { return r.finish(outputs); });
      });
  py::class_<Recorded, std::shared_ptr<Recorded>>(m, "Recorded")
      .def("__call__",
           [](const Recorded& r, const std::vector<at::Tensor>& inputs) {
             const py::gil_scoped_release release;
             return translated("recorded", [&] { return r.run(inputs); });
           })
      .def_property_readonly("text", &Recorded::text)
      .def_property_readonly("op_count", &Recorded::op_count);
}

}  // namespace tpupilot::aten
