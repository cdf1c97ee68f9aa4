# XGrammar, from the source that scripts/setup has put beside pip's cache: a static library without its
# Python side. It takes minutes once; after that the compiler cache has it, for every checkout.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/xgrammar.txt xgrammar_pinned REGEX "^xgrammar==")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/xgrammar.txt)
string(REGEX REPLACE "^xgrammar==([^ ]+).*" "\\1" xgrammar_version "${xgrammar_pinned}")
set(xgrammar_cache $ENV{XDG_CACHE_HOME})
if(NOT xgrammar_cache)
  set(xgrammar_cache $ENV{HOME}/.cache)
endif()
set(XGRAMMAR_DIR ${xgrammar_cache}/aerie/xgrammar-${xgrammar_version} CACHE PATH "the source of xgrammar")
if(NOT EXISTS ${XGRAMMAR_DIR}/include/xgrammar/xgrammar.h)
  message(FATAL_ERROR "xgrammar ${xgrammar_version} is not in ${XGRAMMAR_DIR}: run scripts/setup")
endif()

file(GLOB xgrammar_sources ${XGRAMMAR_DIR}/cpp/*.cc ${XGRAMMAR_DIR}/cpp/converter_ext/*.cc
     ${XGRAMMAR_DIR}/cpp/support/*.cc)
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
target_include_directories(xgrammar SYSTEM PUBLIC ${XGRAMMAR_DIR}/include
                                                  ${XGRAMMAR_DIR}/3rdparty/dlpack/include
                                                  ${XGRAMMAR_DIR}/3rdparty/picojson)
# Its errors and warnings are ours to handle: src/grammar/xgrammar_log.cc.
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0
                                           XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_options(xgrammar PRIVATE -w)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
