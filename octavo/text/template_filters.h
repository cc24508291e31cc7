// The tables of filter, test and global names. The functions themselves are in template_filters_*.cc, template_tests.cc
// and template_globals.cc; a new one is a function and a line in its file's table.
#pragma once

#include <span>
#include <string_view>

#include "octavo/text/template_ast.h"

namespace octavo::text::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
struct TestEntry {
  std::string_view name;
  TestFunction function;
};

std::span<const FilterEntry> TextFilters();
std::span<const FilterEntry> SequenceFilters();
std::span<const FilterEntry> SelectionFilters();
std::span<const FilterEntry> NumberFilters();

// Null when unknown.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);
bool IsGlobalName(std::string_view name);

}  // namespace octavo::text::jinja
