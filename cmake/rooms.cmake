# A room is one folder of src/ and one static library, tpupilot_<room>. What it may include is what it USES.
if(SKBUILD)  # a wheel carries what it uses of OpenSSL: other machines have another, or none
  set(OPENSSL_USE_STATIC_LIBS TRUE)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 QUIET NO_MODULE)
if(NOT Eigen3_FOUND)
  message(FATAL_ERROR "Eigen 3.4 is needed, for linear algebra on the host. Install it (Debian: libeigen3-dev), or name its folder "
    "with -DEigen3_DIR=<path>.")
endif()

function(room name)
  cmake_parse_arguments(ROOM "" "" "USES;LINKS;SYSTEM_INCLUDES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(NOT sources)  # a room that is still empty
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/empty.cpp)
  endif()
  add_library(tpupilot_${name} STATIC ${sources})
  target_include_directories(tpupilot_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(tpupilot_${name} SYSTEM PRIVATE ${ROOM_SYSTEM_INCLUDES})
  foreach(used ${ROOM_USES})
    target_link_libraries(tpupilot_${name} PUBLIC tpupilot_${used})
  endforeach()
  target_link_libraries(tpupilot_${name} PUBLIC ${ROOM_LINKS})
endfunction()

# The text of a file travels inside `target`, as namespace::function() of a header.
function(embed target file header namespace function)
  set(output ${CMAKE_BINARY_DIR}/embedded/${function}.cpp)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_SOURCE_DIR}/${file} -DOUTPUT=${output} -DHEADER=${header}
            -DNAMESPACE=${namespace} -DFUNCTION=${function} -P ${script}
    DEPENDS ${CMAKE_SOURCE_DIR}/${file} ${script}
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
