"""Commands of a checkout, `invoke TASK`; they stand in build/tensorwright."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
for folder in ("benchmarks", "wheels", "build"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))


def take_over() -> None:
    """Run our own program where Invoke's was started.

    Invoke's program reports a command line that it cannot parse in few words and with exit
    code 1, and ends in a traceback when its reader goes away.
    """
    if "invoke.main" in sys.modules and "tensorwright.commandline" not in sys.modules:
        from tensorwright.commandline import CommandLine

        CommandLine().run()
        sys.exit()


take_over()

from tensorwright.program import collect_commands  # noqa: E402  (once it is known whose program runs)

ns = collect_commands()
