"""What ./inv runs."""

from __future__ import annotations

from tensorwright.program import main

main("inv")
