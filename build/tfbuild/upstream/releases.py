"""TensorFlow's releases as frozen records; releases.toml has the facts and their sources."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfbuild.commands import NEWEST
from tfcore import console
from tfcore.errors import PythonError, ReleaseError, WheelError

TABLE = Path(__file__).with_name("releases.toml")
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceArchive:
    """The source archive of the tag on GitHub; `folder` is its top folder."""

    url: str
    folder: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianSource:
    """The upstream tarball of a Debian source package. `size` is in bytes."""

    package: str
    suite: str
    file: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StockWheel:
    """A published wheel. `platform` is the machine (x86_64, aarch64), `size` in bytes if known."""

    package: str
    version: str
    python_tag: str
    platform: str
    file: str
    sha256: str
    size: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Define:
    """A preprocessor macro; `origin` is where TensorFlow's tree defines it."""

    name: str
    value: str | None
    origin: str

    @property
    def flag(self) -> str:
        return f"-D{self.name}" if self.value is None else f"-D{self.name}={self.value}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """The facts needed to compile this release's kernels against its stock wheel.

    Staged prefixes are paths in the source tree; include roots, libraries and the load folder
    are paths under site-packages. `flags` are the published wheel's, without defines and -m
    flags. `machine` is the wheels' machine.
    """

    machine: str
    staged_prefixes: tuple[str, ...]
    staged_suffixes: tuple[str, ...]
    include_roots: tuple[str, ...]
    libraries: tuple[str, ...]
    load_folder: str
    flags: tuple[str, ...]
    defines: tuple[Define, ...]
    forbidden: tuple[Define, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BazelBinary:
    version: str
    platform: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One TensorFlow release.

    `repo_env` and `configure_env` hold names in braces ({python}, {python_bin}, {clang}) that
    `fill_placeholders` replaces. `unasked` are questions that configure.py does not ask
    with these answers. `configs` are those of .bazelrc that concern a CPU build.
    `wheel_folder` is empty if the wheel's build script takes a folder.
    `distinct_host` is True if the tools that run during the build are compiled for the target
    unless --distinct_host_configuration=true is set. `options` are further options of Bazel
    for this machine's compiler.
    """

    version: str
    verified_kernels: str
    verified_full: str
    pythons: tuple[str, ...]
    compiler: str
    bazel: str
    bazel_range: tuple[str, str]
    cxx_standard: int
    wheel_target: str
    wheel_folder: str
    repo_env: tuple[tuple[str, str], ...]
    configure_env: tuple[tuple[str, str], ...]
    unasked: tuple[str, ...]
    configs: tuple[str, ...]
    distinct_host: bool
    options: tuple[str, ...]
    archive: SourceArchive
    debian: DebianSource | None
    wheels: tuple[StockWheel, ...]
    kernels: tuple[KernelFacts, ...]

    def can_use_bazel(self, version: str) -> bool:
        """Return True if `version` is in the range that is known to build this release."""
        oldest, newest = self.bazel_range
        newest_parts = Version(newest).release
        parsed = Version(version)
        return Version(oldest) <= parsed and parsed.release[: len(newest_parts)] <= newest_parts

    @property
    def verified(self) -> str:
        """Return what was verified in each scope of the release."""
        full = f"full scope: {self.verified_full}"
        return f"kernels scope: {self.verified_kernels}; {full}" if self.verified_kernels else full


def fill_placeholders(
    pairs: tuple[tuple[str, str], ...], **names: str
) -> tuple[tuple[str, str], ...]:
    """Return the pairs with every {name} in a value replaced.

    Raises KeyError for a missing name.
    """
    return tuple((name, value.format(**names)) for name, value in pairs)


def list_kernel_releases() -> tuple[Release, ...]:
    """Return the releases that the kernels scope supports, oldest first."""
    return tuple(release for release in load_releases() if release.kernels)


def find_release(version: str) -> Release:
    """Return the release with this version.

    "2.14" stands for its patch release in the table; NEWEST is the newest release with kernels.
    Raises ReleaseError.
    """
    if version == NEWEST:
        return list_kernel_releases()[-1]
    releases = {release.version: release for release in load_releases()}
    requested = version.strip().removeprefix("v")
    if requested in releases:
        return releases[requested]
    by_series = {_parse_series(known): release for known, release in releases.items()}
    if requested in by_series:
        return by_series[requested]
    same_series = by_series.get(_parse_series(requested))
    close = [same_series.version] if same_series else console.find_similar(requested, releases)
    nearest = f"; did you mean {close[0]}?" if close else ""
    raise ReleaseError(
        f"TensorFlow {version} is not in the release table",
        hint=f"Choose --release from {', '.join(releases)}{nearest}",
    )


def format_python_tag(python: str) -> str:
    """Return the tag cp311 of Python 3.11, as in the names of wheels (PEP 425)."""
    return f"cp{python.replace('.', '')}"


def require_python(release: Release, python_tag: str) -> None:
    """Raise PythonError if the release has no wheel for that Python (cp311) at all."""
    tags = dict.fromkeys(wheel.python_tag for wheel in release.wheels)
    if python_tag not in tags:
        raise PythonError(
            f"TensorFlow {release.version} has no wheel for Python {parse_python_tag(python_tag)}",
            hint=f"Choose --python from {', '.join(map(parse_python_tag, tags))}",
        )


def parse_python_tag(tag: str) -> str:
    """Return the Python version 3.11 of the tag cp311."""
    return f"{tag[2]}.{tag[3:]}"


def require_stock_wheel(
    release: Release, package: str, python_tag: str, platform: str
) -> StockWheel:
    """Return the published wheel, for example of ("tensorflow-cpu", "cp311", "x86_64").

    Raises PythonError if the release has no wheel for that Python at all, and WheelError if
    it has none of that package for that machine.
    """
    require_python(release, python_tag)
    matching = [wheel for wheel in release.wheels if wheel.python_tag == python_tag]
    for wheel in matching:
        if (wheel.package, wheel.platform) == (package, platform):
            return wheel
    pairs = dict.fromkeys(f"{wheel.package} on {wheel.platform}" for wheel in matching)
    raise WheelError(
        f"{package} {release.version} has no published {python_tag} wheel for {platform}",
        hint=f"Published for this Python: {', '.join(pairs)}",
    )


CPU_PACKAGES = ("tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow")
"""The packages with TensorFlow for CPUs, in order of preference."""


def choose_cpu_package(release: Release, machine: str) -> str:
    """Return the package that has the release's wheels for CPUs of a machine.

    It is the first of CPU_PACKAGES if no package has them.
    """
    packages = {wheel.package for wheel in release.wheels if wheel.platform == machine}
    return next((name for name in CPU_PACKAGES if name in packages), CPU_PACKAGES[0])


def find_stock_wheel(
    package: str, version: str, python_tag: str, platform: str
) -> StockWheel | None:
    """Return the published wheel that the table pins under this package and version, or None."""
    requested = (package, python_tag, platform)
    for release in load_releases():
        if Version(release.version) == Version(version):
            for wheel in release.wheels:
                if (wheel.package, wheel.python_tag, wheel.platform) == requested:
                    return wheel
    return None


def find_kernel_facts(release: Release, machine: str) -> KernelFacts:
    """Return the kernel facts of the wheels for a machine (x86_64, aarch64).

    Raises ReleaseError if the table has none for the release.
    """
    match = next((facts for facts in release.kernels if facts.machine == machine), None)
    if match is None:
        versions = ", ".join(candidate.version for candidate in list_kernel_releases())
        raise ReleaseError(
            f"tuned kernels cannot be built for TensorFlow {release.version} on {machine}",
            hint=f"Use --scope full, or one of these releases: {versions}",
        )
    return match


def find_bazel_sha256(version: str, platform: str) -> str | None:
    """Return the pinned hash of Bazel for a platform ("linux-x86_64", "linux-arm64"), or None."""
    for binary in load_bazels():
        if (binary.version, binary.platform) == (version, platform):
            return binary.sha256
    return None


def choose_bazel(release: Release) -> str:
    """Return the Bazel version for this release's whole tree.

    It is the release's own if its bytes are pinned, else the newest of the pinned ones that
    builds it.
    """
    pinned = {binary.version for binary in load_bazels()}
    if release.bazel in pinned:
        return release.bazel
    fitting = [version for version in pinned if release.can_use_bazel(version)]
    return max(fitting, key=Version, default=release.bazel)


def read_kernels_bazel() -> str:
    """Return the Bazel version for kernels; it is the same for all releases."""
    return str(_load_table()["kernels"]["bazel"])


@functools.cache
def load_releases() -> tuple[Release, ...]:
    """Return every release in the table, oldest first."""
    table = _load_table()
    return tuple(_parse_release(fields, table) for fields in table["release"])


@functools.cache
def load_bazels() -> tuple[BazelBinary, ...]:
    return tuple(BazelBinary(**fields) for fields in _load_table()["bazel"])


def forget_table() -> None:
    """Read the table again when it is next used, because it was changed."""
    for load in (load_releases, load_bazels, _load_table):
        load.cache_clear()


@functools.cache
def _load_table() -> dict[str, Any]:
    with TABLE.open("rb") as source:
        table = tomllib.load(source)
    if table["schema"] != SCHEMA:
        raise ReleaseError(f"releases.toml has schema {table['schema']}, expected {SCHEMA}")
    return table


def _parse_release(fields: Mapping[str, Any], table: Mapping[str, Any]) -> Release:
    version = fields["version"]
    oldest, newest = fields["bazel_range"]
    archive = {name: text.format(version=version) for name, text in table["archive"].items()}
    debian = fields.get("debian")
    return Release(
        version=version,
        verified_kernels=fields.get("verified_kernels", ""),
        verified_full=fields["verified_full"],
        pythons=tuple(fields["pythons"]),
        compiler=fields["compiler"],
        bazel=fields["bazel"],
        bazel_range=(oldest, newest),
        cxx_standard=fields["cxx_standard"],
        wheel_target=fields["wheel_target"],
        wheel_folder=fields["wheel_folder"],
        repo_env=tuple(fields["repo_env"].items()),
        configure_env=_select_answers(fields, table),
        unasked=tuple(table["unasked"]),
        configs=_select_configs(version, table["configs"]),
        distinct_host=fields.get("distinct_host", False),
        options=tuple(fields.get("options", ())),
        archive=SourceArchive(sha256=fields["source_sha256"], **archive),
        debian=None if debian is None else DebianSource(**debian),
        wheels=tuple(_parse_wheel(wheel) for wheel in fields["wheels"]),
        kernels=_parse_kernels(version, table["kernels"]),
    )


def _select_answers(
    fields: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Return the common answers and the release's, without those that it does not ask for."""
    answers = table["configure_env"] | fields["configure_env"]
    unknown = fields.get("configure_env_unknown", ())
    return tuple((name, value) for name, value in answers.items() if name not in unknown)


def _select_configs(version: str, spans: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the configs that this release's series defines."""
    return tuple(name for name, span in spans.items() if _is_in(version, span))


def _is_in(version: str, span: Sequence[str]) -> bool:
    """Return True if a release is in a span: its first series and, if it ended, its last one."""
    first, *last = map(Version, span)
    series = Version(_parse_series(version))
    return first <= series and all(series <= end for end in last)


def _parse_wheel(fields: Mapping[str, Any]) -> StockWheel:
    """Return a wheel with the facts from its file name, which the table does not repeat."""
    package, version, _, tags = parse_wheel_filename(fields["file"])
    interpreters = {tag.interpreter for tag in tags}
    machines = {tag.platform.partition("_x86_64")[1] or "_aarch64" for tag in tags}
    return StockWheel(
        package=package,
        version=str(version),
        python_tag=interpreters.pop(),
        platform=machines.pop().removeprefix("_"),
        file=fields["file"],
        sha256=fields["sha256"],
        size=fields.get("size"),
    )


def _parse_kernels(version: str, fields: Mapping[str, Any]) -> tuple[KernelFacts, ...]:
    """Return the kernel facts of a release for each machine that has wheels.

    They combine the table's facts for all kernels with the defines of the release's series.
    Empty for a release that the table does not cover.
    """
    if not _is_in(version, fields["series"]):
        return ()
    return tuple(
        _parse_facts(version, fields, machine, machine_fields)
        for machine, machine_fields in fields["machine"].items()
    )


def _parse_facts(
    version: str, fields: Mapping[str, Any], machine: str, machine_fields: Mapping[str, Any]
) -> KernelFacts:
    return KernelFacts(
        machine=machine,
        staged_prefixes=tuple(fields["staged_prefixes"]),
        staged_suffixes=tuple(fields["staged_suffixes"]),
        include_roots=(*fields["include_roots"], *machine_fields["include_roots"]),
        libraries=tuple(fields["libraries"]),
        load_folder=fields["load_folder"],
        flags=(*fields["flags"], *machine_fields["flags"]),
        defines=_select_defines(version, machine, fields["define"]),
        forbidden=_select_defines(version, machine, fields["forbidden"]),
    )


def _select_defines(
    version: str, machine: str, rows: Iterable[Mapping[str, Any]]
) -> tuple[Define, ...]:
    """Return the defines of a release's series and of a machine.

    A row without them applies to every one.
    """
    return tuple(
        Define(name=row["name"], value=row.get("value"), origin=row["origin"])
        for row in rows
        if ("series" not in row or _is_in(version, row["series"]))
        and row.get("machine", machine) == machine
    )


def _parse_series(version: str) -> str:
    """Return the series 2.14 of the version 2.14.1."""
    return ".".join(version.split(".")[:2])
