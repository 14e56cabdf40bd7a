// Used instead of selection.cc to register every kernel.

#include "tensorwright/selection.h"

bool tensorwright::IsSelected(const char*, const char*) { return true; }
