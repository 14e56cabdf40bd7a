"""Machine code that reads XCR0."""

from __future__ import annotations

XGETBV = """
#include <cpuid.h>
int ready(void) {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low & 6;
}
"""
