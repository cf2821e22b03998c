# The headers of the PJRT and FFI C APIs, where nobody fetched them before (a wheel's build).
if(NOT TPUPILOT_PJRT_INCLUDE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(TPUPILOT_PJRT_INCLUDE ${CMAKE_BINARY_DIR}/pjrt-include)
  if(NOT EXISTS ${TPUPILOT_PJRT_INCLUDE}/xla/ffi/api/c_api.h)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/fetch_pjrt_header.py ${TPUPILOT_PJRT_INCLUDE}
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
endif()
