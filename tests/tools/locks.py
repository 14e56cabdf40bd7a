"""Makes the two lock files again: `python -m tests.tools.locks [OPTIONS OF UV]`, such as --upgrade.

What is locked stays as it is unless uv is told otherwise.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tfcore.settings import ROOT

USER, DEVELOPER = ROOT / "requirements.txt", ROOT / "requirements-dev.txt"
_COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile"),
    *("--quiet", "--universal", "--generate-hashes"),
    *("--no-emit-index-url", "--no-annotate", "--no-header", "pyproject.toml"),
)
_HEADS = {
    USER: "# What a user runs (pyproject.toml, extra s3), for Python 3.11 and newer.",
    DEVELOPER: "# What ./inv test and ./inv lint need beside requirements.txt (the extra dev).",
}


def entries(text: str) -> list[str]:
    """What a lock holds, each package with its hashes."""
    return re.findall(r"^[a-z0-9][^\n]*(?:\n    [^\n]*)*\n", text, re.MULTILINE)


def name_of(entry: str) -> str:
    return entry.partition("==")[0]


def bare(entry: str) -> tuple[str, str]:
    """The entry without its marker, and the marker, which may be empty."""
    match = re.match(r"\S+( ; (.*?)) \\$", entry, re.MULTILINE)
    return (entry.replace(match[1], "", 1), match[2]) if match else (entry, "")


def _compiled(known: str, *words: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lock.txt"
        out.write_text(known, encoding="utf-8")
        subprocess.run([*_COMPILE, *words, "-o", str(out)], cwd=ROOT, check=True)
        return out.read_text(encoding="utf-8")


def _write(path: Path, packages: list[str]) -> None:
    use = f"# Install with: pip install --require-hashes -r {path.name}"
    if path == DEVELOPER:
        use = use.replace(f"-r {path.name}", f"-r {USER.name} -r {path.name}")
    path.write_text("\n".join([_HEADS[path], use, "".join(packages)]), encoding="utf-8")


def main() -> None:
    known = "".join(path.read_text(encoding="utf-8") for path in _HEADS if path.is_file())
    user = entries(_compiled(known, "--extra", "s3", *sys.argv[1:]))
    _write(USER, user)
    all_lines = entries(_compiled(known, "--extra", "dev", "-c", str(USER), *sys.argv[1:]))
    # By name: a marker that differs is of a machine that we do not serve.
    names = {name_of(name) for name in user}
    _write(DEVELOPER, [name for name in all_lines if name_of(name) not in names])


if __name__ == "__main__":
    main()
