// In the place of a selection: every kernel is registered.

#include "tensorwright/selection.h"

bool tensorwright::Selected(const char*, const char*) { return true; }
