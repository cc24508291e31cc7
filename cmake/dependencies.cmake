# Outside libraries and the folders that may use them. Everything comes from the system's packages.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(re2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)

# OCTAVO_LIBS_<folder>: what a folder links beyond the folders below it.
set(OCTAVO_LIBS_base fmt::fmt Threads::Threads PkgConfig::xxhash)
set(OCTAVO_LIBS_config PkgConfig::yaml)
set(OCTAVO_LIBS_text PkgConfig::pcre2 PkgConfig::utf8proc PkgConfig::sentencepiece nlohmann_json::nlohmann_json)
set(OCTAVO_LIBS_quant PkgConfig::re2 nlohmann_json::nlohmann_json)
set(OCTAVO_LIBS_checkpoint nlohmann_json::nlohmann_json)
