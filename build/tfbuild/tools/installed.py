"""Inspect an installed wheel: which kernels an import runs, and the reason."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tfbuild import interpreters
from tfbuild.packing import tuned
from tfbuild.packing.tuned import Tuned
from tfcore import console
from tfcore.cpus.cpu import Cpu
from tfcore.errors import CommandError, HostError, UsageError, WheelError
from tfcore.run import run

_PROBE = Path(__file__).parents[1] / "probe" / "imported.py"
_IMPORT_S = 300.0
_TAG = re.compile(r"^Tag: cp3(\d+)-", re.MULTILINE)
_AGAIN = "Install the wheel again: pip install --force-reinstall --no-deps WHEEL"
_ELSEWHERE = "TensorFlow loads kernels only from a folder named site-packages: install the wheel "
_ELSEWHERE += "into a virtual environment, not with pip install --target"


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledWheel:
    """The TensorFlow that an import loads.

    `facts` are the wheel's record, None if it is not tuned. `loaded` is the target whose kernels
    run; `reason` is the reason if the stock kernels run.
    """

    file: str
    version: str
    facts: Tuned | None
    loaded: str
    reason: str


def inspect_install(place: Path) -> InstalledWheel:
    """Import TensorFlow as a user would, and return the result.

    `place` is an interpreter, an environment, or a folder with packages. Raises UsageError,
    PythonError, and HostError for an import that fails.
    """
    python, env = _find_interpreter(place)
    with tempfile.TemporaryDirectory(prefix="tensorwright-") as folder:
        answer = Path(folder) / "answer.json"
        words: list[str | Path] = [python, "-c", _PROBE.read_text(encoding="utf-8"), answer]
        try:
            with console.report_step(f"import tensorflow in {place}"):
                run(words, cwd=Path(folder), env=os.environ | env, timeout_s=_IMPORT_S)
        except CommandError as error:
            raise HostError(
                f"cannot import TensorFlow in {place}: {error.last_line}",
                hint=f"Run: {python} -c 'import tensorflow'",
            ) from error
        report = json.loads(answer.read_text(encoding="utf-8"))
    record = next(map(Path, report.pop("records")), None)
    facts = None
    if record is not None:
        facts = tuned.parse(record.read_bytes(), record.parent.name)
    return InstalledWheel(**report, facts=facts)


def _find_interpreter(place: Path) -> tuple[Path, dict[str, str]]:
    """Find the interpreter of an installation, and the variables it needs for the import."""
    if place.is_file() and os.access(place, os.X_OK):
        return place.absolute(), {}
    above = place.absolute().parents[2:3] if place.name == "site-packages" else ()
    for root in (place, *above):  # (…/lib/python3.11/site-packages)
        if (root / "bin" / "python").is_file():
            return root.absolute() / "bin" / "python", {}
    for record in place.glob("tensorflow*.dist-info/WHEEL"):
        if match := _TAG.search(record.read_text(encoding="utf-8")):
            path = os.pathsep.join(
                filter(None, [str(place.absolute()), os.environ.get("PYTHONPATH")])
            )
            return interpreters.find_python(f"3.{match[1]}"), {"PYTHONPATH": path}
    raise UsageError(
        f"no TensorFlow is installed in {place}",
        hint="Give a Python interpreter, a virtual environment, or the folder of pip install "
        "--target. For a .whl file, use invoke audit",
    )


def describe(wheel: InstalledWheel) -> str:
    """Describe in one line which kernels run."""
    subject = f"TensorFlow {wheel.version}, {Path(wheel.file).parent},"
    if wheel.facts is None:
        return f"{subject} is not a tuned wheel\n"
    targets = ", ".join(wheel.facts.targets)
    if wheel.facts.tree is not None:
        return f"{subject} is a full build for {targets}\n"
    if wheel.loaded:
        return f"{subject} runs its kernels for {wheel.loaded} (of {targets})\n"
    return f"{subject} runs the stock kernels: {wheel.reason}\n"


def require_own_kernels(wheel: InstalledWheel, cpu: Cpu) -> None:
    """Raise WheelError if the stock kernels run although this CPU can run others."""
    if wheel.facts is None:
        raise WheelError(f"{wheel.file} is not from a tuned wheel", hint=_AGAIN)
    library = tuned.choose_build(wheel.facts, cpu)
    if wheel.facts.tree is not None or wheel.loaded or library is None:
        return
    if wheel.reason.endswith("is missing") or "cannot be loaded" in wheel.reason:
        remedy = _AGAIN
    elif "site-packages" in wheel.reason:
        remedy = _ELSEWHERE
    else:
        remedy = "Check the variables TENSORWRIGHT_TARGET and TENSORWRIGHT_MASK"
    raise WheelError(
        f"the stock kernels run, but this CPU can run those for {library.target}", hint=remedy
    )
