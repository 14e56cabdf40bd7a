"""The commands of a checkout, `invoke TASK`; build/tensorwright defines them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
for folder in ("benchmarks", "wheels", "build"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))


def take_over() -> None:
    """Run our own program if Invoke's was started.

    Invoke's program exits with 1 and a short message if it cannot parse a command line, and
    with a traceback if the reader closes its output.
    """
    if "invoke.main" in sys.modules and "tensorwright.commandline" not in sys.modules:
        from tensorwright.commandline import CommandLine

        CommandLine().run()
        sys.exit()


take_over()

from tensorwright.program import collect_commands  # noqa: E402  (only if take_over returns)

ns = collect_commands()
