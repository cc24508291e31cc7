# embed_files(OUT.cc NAME FILES…): a source file that defines std::span<const octavo::EmbeddedFile> octavo::NAME() with the texts of the
# files. Declared in octavo/base/embedded_file.h's form by whoever uses it.
function(embed_files out name)
  set(entries "")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    get_filename_component(base ${file} NAME)
    string(APPEND entries "    {\"${base}\", R\"~embedded~(${text})~embedded~\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"#include \"octavo/base/embedded_file.h\"

namespace octavo {
std::span<const EmbeddedFile> @name@();
std::span<const EmbeddedFile> @name@() {
  static const EmbeddedFile files[] = {
@entries@  };
  return files;
}
}  // namespace octavo
")
endfunction()

# embed_web(OUT.cc NAME FOLDER): a source file that defines std::span<const octavo::server::WebFile> octavo::server::NAME() with the files
# of the folder, compressed; index.html is "/". The digests are those of the files as written.
function(embed_web out name folder)
  find_program(GZIP_PROGRAM gzip REQUIRED)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.html ${folder}/*.css ${folder}/*.js)
  set(types_html "text/html; charset=utf-8")
  set(types_css "text/css; charset=utf-8")
  set(types_js "text/javascript; charset=utf-8")
  set(arrays "")
  set(entries "")
  set(index 0)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(base ${file} NAME)
    get_filename_component(ending ${file} LAST_EXT)
    string(SUBSTRING ${ending} 1 -1 ending)
    string(REGEX REPLACE "^index\\.html$" "" path ${base})
    file(SHA256 ${file} digest)
    string(SUBSTRING ${digest} 0 32 digest)
    execute_process(COMMAND ${GZIP_PROGRAM} -9nc ${file} OUTPUT_FILE ${out}.gz COMMAND_ERROR_IS_FATAL ANY)
    file(READ ${out}.gz bytes HEX)
    file(REMOVE ${out}.gz)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
    string(APPEND arrays "constexpr char kFile${index}[] = \"${bytes}\";\n")
    string(APPEND entries
      "    {\"/${path}\", \"${types_${ending}}\", {kFile${index}, sizeof kFile${index} - 1}, \"\\\"${digest}\\\"\"},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"#include \"octavo/server/web_files.h\"

namespace octavo::server {
namespace {

@arrays@
}  // namespace

std::span<const WebFile> @name@() {
  static constexpr WebFile files[] = {
@entries@  };
  return files;
}

}  // namespace octavo::server
")
endfunction()
