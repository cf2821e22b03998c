# torch's headers and libraries, from the interpreter that CMake was given. find_package(Torch) would add kineto
# and a second copy of the flags; these lines are all that is needed.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE TPUPILOT_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
add_library(torch_headers INTERFACE)
target_include_directories(torch_headers SYSTEM INTERFACE
  ${TPUPILOT_TORCH_DIR}/include ${TPUPILOT_TORCH_DIR}/include/torch/csrc/api/include)
# Its headers name themselves in error texts: not by where this torch happens to lie.
target_compile_options(torch_headers INTERFACE -ffile-prefix-map=${TPUPILOT_TORCH_DIR}/=torch/)
target_link_directories(torch_headers INTERFACE ${TPUPILOT_TORCH_DIR}/lib)
target_link_libraries(torch_headers INTERFACE c10 torch_cpu)

# Which torch the module is for, told to the Python part: with another one the module's symbols would be missing, or worse.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import runpy; print(runpy.run_path('${TPUPILOT_TORCH_DIR}/version.py')['__version__'])"
  OUTPUT_VARIABLE TPUPILOT_TORCH_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/built_for.py CONTENT "# Made by CMake.\nTORCH = \"${TPUPILOT_TORCH_VERSION}\"\n" @ONLY)
