# cmake --install: binary, libraries, headers under octavo/, CMake package (octavo::octavo, octavo::quant, …), pkg-config file.
include(CMakePackageConfigHelpers)

add_library(octavo_all INTERFACE)
add_library(octavo::octavo ALIAS octavo_all)
set_target_properties(octavo_all PROPERTIES EXPORT_NAME octavo)
set(installed octavo_all)
set(archives "")
foreach(folder IN LISTS OCTAVO_FOLDERS)
  if(NOT folder STREQUAL "cli")
    target_link_libraries(octavo_all INTERFACE octavo_${folder})
    list(APPEND installed octavo_${folder})
    get_target_property(kind octavo_${folder} TYPE)
    if(kind STREQUAL "STATIC_LIBRARY")
      string(PREPEND archives "-loctavo_${folder} ")
    endif()
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/octavo/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octavo
      FILES_MATCHING PATTERN "*.h" PATTERN "*_avx2.h" EXCLUDE)
  endif()
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/octavo/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/octavo)
install(TARGETS ${installed} EXPORT octavo_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET octavo)
  install(TARGETS octavo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/octavo)
install(EXPORT octavo_targets NAMESPACE octavo:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/octavo-config.cmake.in ${PROJECT_BINARY_DIR}/octavo-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/octavo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/octavo-config.cmake ${PROJECT_BINARY_DIR}/octavo-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake DESTINATION ${package_dir})

set(OCTAVO_ARCHIVES "${archives}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/octavo.pc.in ${PROJECT_BINARY_DIR}/octavo.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/octavo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
