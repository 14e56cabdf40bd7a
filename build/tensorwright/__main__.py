"""The entry point of ./inv."""

from __future__ import annotations

from tensorwright.program import main

main("inv")
