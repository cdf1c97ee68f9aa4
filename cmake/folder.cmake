# aerie_folder(<name> [DEPS lib ...] [TEST_DEPS lib ...] [EXTRA_DIRS dir ...] [TEST_LABEL fast|slow])
#
# Declares the folder that the calling CMakeLists.txt stands in: all its .cc files (and those of
# EXTRA_DIRS below it) become the static library aerie_<name>, all its *_test.cc files the test
# binary <name>_test. Folder dependencies are named aerie_<folder>.

# What most files include, read once: more than half of the time that a file takes to compile. Files
# still include what they use.
set(often_included <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint>
    <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/core.h>)
add_library(aerie_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(aerie_pch PRIVATE ${often_included})
target_link_libraries(aerie_pch PUBLIC Threads::Threads fmt::fmt)

add_library(aerie_gtest_pch STATIC ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(aerie_gtest_pch PRIVATE ${often_included} <gtest/gtest.h> <gmock/gmock.h>)
target_link_libraries(aerie_gtest_pch PUBLIC GTest::gtest GTest::gmock Threads::Threads fmt::fmt)

function(aerie_folder name)
  cmake_parse_arguments(arg "" "TEST_LABEL" "DEPS;TEST_DEPS;EXTRA_DIRS" ${ARGN})
  set(globs ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  foreach(dir ${arg_EXTRA_DIRS})
    list(APPEND globs ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cu)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")

  if(sources)
    add_library(aerie_${name} STATIC ${sources})
    target_precompile_headers(aerie_${name} REUSE_FROM aerie_pch)
    target_include_directories(aerie_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(aerie_${name} PUBLIC ${arg_DEPS})
  else()
    add_library(aerie_${name} INTERFACE)
    target_include_directories(aerie_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(aerie_${name} INTERFACE ${arg_DEPS})
  endif()

  if(tests)
    add_executable(${name}_test ${tests})
    target_precompile_headers(${name}_test REUSE_FROM aerie_gtest_pch)
    target_link_libraries(${name}_test PRIVATE aerie_${name} ${arg_TEST_DEPS}
                          aerie_gtest_pch GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE AERIE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name}_test COMMAND ${name}_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_test PROPERTIES LABELS "${arg_TEST_LABEL}" TIMEOUT 1800)
    if(NOT arg_TEST_LABEL)
      set_tests_properties(${name}_test PROPERTIES LABELS fast)
    endif()
  endif()
endfunction()
