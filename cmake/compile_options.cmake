# One interface target carries the language level, warnings and sanitizers of every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(GIMBAL_SANITIZERS "" CACHE STRING "Value for -fsanitize=, for example address,undefined")
option(GIMBAL_WARNINGS_AS_ERRORS "Fail the build on a warning" OFF)

find_program(GIMBAL_CCACHE ccache)
if(GIMBAL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GIMBAL_CCACHE})
endif()

add_library(gimbal_compile_options INTERFACE)
target_include_directories(gimbal_compile_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# No contraction: a*b+c is fused only where the code says so, so that every compiler gives the same bits.
target_compile_options(gimbal_compile_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -ffp-contract=off)
target_compile_definitions(gimbal_compile_options INTERFACE SPDLOG_FMT_EXTERNAL)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(gimbal_compile_options INTERFACE -Wno-restrict)  # wrong warnings on std::string + in GCC 12, bug 105651
endif()
if(GIMBAL_WARNINGS_AS_ERRORS)
  target_compile_options(gimbal_compile_options INTERFACE -Werror)
endif()
if(GIMBAL_SANITIZERS)
  target_compile_options(gimbal_compile_options INTERFACE -fsanitize=${GIMBAL_SANITIZERS} -fno-omit-frame-pointer
                                                          -fno-sanitize-recover=all)
  target_link_options(gimbal_compile_options INTERFACE -fsanitize=${GIMBAL_SANITIZERS})
endif()

find_program(GIMBAL_MOLD mold)
if(GIMBAL_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_link_options(gimbal_compile_options INTERFACE -fuse-ld=mold)
endif()
