# Compiler flags of every target, as one interface library.
add_library(octavo_flags INTERFACE)
target_compile_features(octavo_flags INTERFACE cxx_std_20)

# The bit rules: no contraction, no fast-math; FMA only where it is written.
set(OCTAVO_CXX_FLAGS -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(OCTAVO_WERROR)
  list(APPEND OCTAVO_CXX_FLAGS -Werror)
endif()

# Hardening. _FORTIFY_SOURCE needs optimization and does not mix with sanitizers.
list(APPEND OCTAVO_CXX_FLAGS -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND OCTAVO_CXX_FLAGS -fcf-protection -fstack-clash-protection)
endif()
if(OCTAVO_SANITIZE STREQUAL "")
  list(APPEND OCTAVO_CXX_FLAGS $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>
       $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
endif()
set(OCTAVO_LINK_FLAGS -Wl,-z,relro,-z,now)

if(OCTAVO_SANITIZE STREQUAL "address+undefined")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(OCTAVO_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT OCTAVO_SANITIZE STREQUAL "")
  message(FATAL_ERROR "OCTAVO_SANITIZE='${OCTAVO_SANITIZE}': expected address+undefined, thread or empty")
endif()
if(OCTAVO_FUZZ)
  list(APPEND sanitize -fsanitize=fuzzer-no-link)
endif()
# g++ 12 warns falsely of copies and fills inside std::string and std::vector: it follows branches that lengths known to the
# program exclude, and what it inlines, so what it warns of, depends on as little as the length of the build's path. clang and
# the address sanitizer keep those checks. At -O3 it also warns of strings that an exception leaves behind; the test builds
# (-O1, warnings as errors) keep that one.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND OCTAVO_CXX_FLAGS -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  if(NOT OCTAVO_WERROR)
    list(APPEND OCTAVO_CXX_FLAGS -Wno-maybe-uninitialized)
  endif()
endif()
list(APPEND OCTAVO_CXX_FLAGS ${sanitize})
list(APPEND OCTAVO_LINK_FLAGS ${sanitize})

target_compile_options(octavo_flags INTERFACE ${OCTAVO_CXX_FLAGS})
target_link_options(octavo_flags INTERFACE ${OCTAVO_LINK_FLAGS})
target_compile_definitions(octavo_flags INTERFACE _GLIBCXX_ASSERTIONS)
if(OCTAVO_CHECKS)
  target_compile_definitions(octavo_flags INTERFACE OCTAVO_CHECKS=1)
endif()

# Instruction sets: only files named *_avx2.cc, *_avx512.cc and *_amx.cc see these flags.
set(OCTAVO_AVX2_FLAGS -mavx2 -mfma -mf16c)
set(OCTAVO_AVX512_FLAGS ${OCTAVO_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
# g++ 12 calls the intrinsics' own undefined registers uninitialized.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND OCTAVO_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(OCTAVO_AMX_FLAGS ${OCTAVO_AVX512_FLAGS} -mamx-tile -mamx-int8)
