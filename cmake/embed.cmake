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
