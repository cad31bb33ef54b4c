# One library per room, one test binary per tested source, one place for flags.

function(sluice_global_flags)
  set(CMAKE_CXX_STANDARD 20 PARENT_SCOPE)
  set(CMAKE_CXX_STANDARD_REQUIRED ON PARENT_SCOPE)
  set(CMAKE_CXX_EXTENSIONS OFF PARENT_SCOPE)
  set(CMAKE_C_STANDARD 11 PARENT_SCOPE)
  # Every archive may end up in libsluice.so or libsluice_romio.so.
  set(CMAKE_POSITION_INDEPENDENT_CODE ON PARENT_SCOPE)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden PARENT_SCOPE)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON PARENT_SCOPE)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON PARENT_SCOPE)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin PARENT_SCOPE)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib PARENT_SCOPE)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archive PARENT_SCOPE)

  # Assertions stay on in every build: SLUICE_ASSERT does not depend on NDEBUG, and NDEBUG stays undefined.
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1" PARENT_SCOPE)
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g1" PARENT_SCOPE)
  # The sanitizer builds: optimised enough to run in minutes, not so much that compiling them takes longer than that.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" PARENT_SCOPE)
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1" PARENT_SCOPE)

  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>)
  if(SLUICE_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  if(SLUICE_SANITIZE)
    add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${SLUICE_SANITIZE})
  endif()

  find_program(SLUICE_CCACHE ccache)
  if(SLUICE_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${SLUICE_CCACHE} PARENT_SCOPE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE} PARENT_SCOPE)
  endif()
  include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
endfunction()

# sluice_room(NAME SOURCES ... DEPS ... PKGS ... SCHEMAS ...)
# The static library sluice_NAME. PKGS are pkg-config names, private to the room (design: third-party headers stay in one room).
# SCHEMAS are FlatBuffers schemas; their headers are generated and included as "NAME/x_generated.h".
function(sluice_room name)
  cmake_parse_arguments(R "" "" "SOURCES;DEPS;PKGS;LIBS;SCHEMAS" ${ARGN})
  add_library(sluice_${name} STATIC ${R_SOURCES})
  target_link_libraries(sluice_${name} PUBLIC ${R_DEPS} PRIVATE ${R_LIBS})
  foreach(pkg IN LISTS R_PKGS)
    pkg_check_modules(PKG_${pkg} REQUIRED IMPORTED_TARGET ${pkg})
    target_link_libraries(sluice_${name} PRIVATE PkgConfig::PKG_${pkg})
  endforeach()
  if(R_SCHEMAS)
    find_program(SLUICE_FLATC flatc REQUIRED)
    set(outputs)
    foreach(schema IN LISTS R_SCHEMAS)
      get_filename_component(stem ${schema} NAME_WE)
      set(out ${CMAKE_BINARY_DIR}/generated/${name}/${stem}_generated.h)
      add_custom_command(
        OUTPUT ${out}
        COMMAND ${SLUICE_FLATC} --cpp --cpp-std c++17 --scoped-enums --gen-object-api -o ${CMAKE_BINARY_DIR}/generated/${name}
                ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
        DEPENDS ${schema} VERBATIM)
      list(APPEND outputs ${out})
    endforeach()
    add_custom_target(sluice_${name}_schemas DEPENDS ${outputs})
    add_dependencies(sluice_${name} sluice_${name}_schemas)
  endif()
endfunction()

# sluice_test(NAME SOURCES ... DEPS ... LABELS ... TIMEOUT s)
# One gtest binary, one ctest of the same name. Use gtest_main; RUN_SERIAL is never needed: tests own their directories.
function(sluice_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;DEPS;LABELS;LIBS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(${name} ${T_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${T_DEPS} ${T_LIBS} GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
endfunction()
