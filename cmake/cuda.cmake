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
add_compile_definitions("$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEXPR=1>")

# The header libraries of cmake/cuda/requirements.txt, which scripts/setup --cuda puts beside pip's cache.
# The two bring different versions of CUTLASS: a source names the one it is built with.
set(cuda_cache $ENV{XDG_CACHE_HOME})
if(NOT cuda_cache)
  set(cuda_cache $ENV{HOME}/.cache)
endif()
set(cuda_pinned ${CMAKE_CURRENT_LIST_DIR}/cuda/requirements.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cuda_pinned})
# find_cuda_headers(<variable> <package> <name> <header>): <variable> = the folder of the pinned version.
function(find_cuda_headers variable package name header)
  file(STRINGS ${cuda_pinned} pinned REGEX "^${package}==")
  string(REGEX REPLACE "^[^=]+==([^ ]+).*" "\\1" version "${pinned}")
  set(folder ${cuda_cache}/aerie/${name}-${version})
  if(NOT EXISTS ${folder}/${header})
    message(FATAL_ERROR "${name} ${version} is not in ${folder}: run scripts/setup --cuda")
  endif()
  set(${variable} ${folder} PARENT_SCOPE)
endfunction()
find_cuda_headers(FLASHINFER_DIR flashinfer-python flashinfer include/flashinfer/attention/mla_hopper.cuh)
find_cuda_headers(DEEP_GEMM_DIR sgl-deep-gemm deep-gemm include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh)

# aerie_cuda_headers(FLASHINFER|DEEP_GEMM source...): what the sources need to include that library.
function(aerie_cuda_headers library)
  if(library STREQUAL FLASHINFER)
    # CCCL first: FlashInfer needs a later one than CUDA's.
    set(folders cccl/libcudacxx/include cccl/cub cccl/thrust include cutlass/include)
    list(TRANSFORM folders PREPEND ${FLASHINFER_DIR}/)
  else()
    set(folders ${DEEP_GEMM_DIR}/include)
  endif()
  list(TRANSFORM folders PREPEND -isystem=)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
                              "${folders};-DNDEBUG;--diag-suppress=946")
endfunction()
