"""Tables of structures in a library."""

from __future__ import annotations

from pathlib import Path

from tests.builders.compiled_code import library


def tables(folder: Path, numbers: dict[str, dict[str, int]], compiler: str = "clang-16") -> Path:
    """A library with these tables, as native/structures.cc writes them."""
    text = "struct row { const char* what; unsigned long long number; };\n"
    for name, table in numbers.items():
        rows = ", ".join(f'{{"{part}", {number}}}' for part, number in table.items())
        text += f"const struct row {name}[] = {{{rows}}};\n"
    return library(folder, "structures", text, "-nostdlib", compiler=compiler)
