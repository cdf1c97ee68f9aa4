# Compiler flags, the compiler cache, the linker and the sanitizers.

set(AERIE_SANITIZE "" CACHE STRING "sanitizers to build with, as for -fsanitize=")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  # The sloppiness that precompiled headers need, and one cache for checkouts in any folder.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE_PROGRAM})
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wno-maybe-uninitialized;\
-Werror=return-type;-fno-math-errno;-ffp-contract=off>"
                    $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
# -Wno-maybe-uninitialized: g++ 12 is wrong about moved-from variants.
# -ffp-contract=off: a fused multiply-add is written where it is meant, so that results do not
# depend on what the compiler inlines.

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

if(AERIE_SANITIZE)
  add_compile_options(-fsanitize=${AERIE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${AERIE_SANITIZE})
endif()
