# The card's side of the kernels, with AERIE_CUDA alone: nothing here is looked for otherwise.

option(AERIE_CUDA "build for an NVIDIA GPU, Hopper (sm_90a)" OFF)
if(NOT AERIE_CUDA)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that CUDA 13 has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
string(APPEND CMAKE_CUDA_FLAGS
       " --expt-relaxed-constexpr --expt-extended-lambda -Xcompiler=-Wno-unused-parameter")
# nvcc takes fmt's check of a format at compile time for an error.
add_compile_definitions(AERIE_CUDA
                        "$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEXPR=1>")
