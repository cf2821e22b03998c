# Stops before minutes of compiling where the result could not work: another platform, a CUDA build of torch, a torch out of range.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/python/tpupilot/supported.py
  OUTPUT_VARIABLE sentence OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "tpupilot cannot be built here: ${sentence}")
endif()
