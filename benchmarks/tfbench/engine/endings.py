"""Find the line of a worker's output that explains why it ended. Pure."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ERROR = re.compile(r"(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt|Warning))(?::|$)")
_ENDS = re.compile(r"Check failed|what\(\):|terminate called|[Oo]ut of memory|^Fatal Python error")
"""Messages of C++ and Python before they abort."""
_POSITION = re.compile(r"\[\[|; NodeDef:|\[Op:|File \"|\^+$")
"""Lines that TensorFlow and Python print around an error to show its location."""
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] ")
"""TensorFlow's information and warnings, which do not end a process."""


def clean_lines(output: str) -> list[str]:
    """Return the lines that a worker printed, without colours and empty lines."""
    lines = map(str.strip, _ANSI.sub("", output).splitlines())
    return [line for line in lines if line]


def find_explanation(output: str) -> str:
    """Return the line of a worker's output that explains its end, with the name of the exception.

    Empty if there is none.
    """
    lines = [line for line in clean_lines(output) if not _LOGGED.match(line)]
    raised = [at for at, line in enumerate(lines) if _ERROR.match(line)]
    aborted = [at for at, line in enumerate(lines) if _ENDS.search(line)]
    if aborted and (not raised or aborted[-1] > raised[-1]):
        return lines[aborted[-1]]
    if not raised:
        return lines[-1] if lines else ""
    # TensorFlow prints the cause of a graph execution error further down, and numbers several
    # causes (tsl/platform/status.cc: StatusGroup).
    error = lines[raised[-1]]
    details = [line for line in lines[raised[-1] + 1 :] if not _POSITION.match(line)]
    name = _ERROR.match(error)
    if name is None or not details or not error.endswith("Graph execution error:"):
        return error
    first = next((line for line in details if line.startswith("(0) ")), details[-1])
    return " ".join([f"{name[1]}:", *first.removeprefix("(0) ").split()])
