"""The C and C++ of a kernel library, and the conformance programs of fused ops (ops/)."""
