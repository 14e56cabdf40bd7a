"""Experimental: convert a tuned wheel to a variant of the plain wheel, for an x86-64 level.

PEP 825 adds a label to a wheel's file name, and a `variant.json` that defines the label to the
wheel. PEP 850 defines which program detects whether a host has it. Both are drafts. An installer
without support skips such a file and takes the plain wheel of the same version beside it.

Today, installers detect only the level of a CPU (uv 0.13 knows x86_64 :: level :: v1 to v4). So a
wheel can be a variant only if every instruction in it is within a level. The census of its kernel
libraries shows this; `invoke audit` has compared the census with their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType

from archspec.cpu import TARGETS
from packaging.version import Version

from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import Tuned, read_tuned
from tfcore.cpus.features import STOCK_BASELINE
from tfcore.cpus.targets import parse_target
from tfcore.errors import PublishError
from tfcore.records import format_json

SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
FILE = "variant.json"

_NAMESPACE = "x86_64"
_FEATURE = "level"
_PROVIDER = "x86-64-variant-provider"
"""The provider of the levels. uv implements it itself; no package of this name needs to exist."""

LEVELS = MappingProxyType(
    {
        # archspec lists nothing for x86_64; these are the psABI's.
        "v1": frozenset({"mmx", "sse", "sse2"}),
        "v2": TARGETS["x86_64_v2"].features,
        "v3": TARGETS["x86_64_v3"].features,
        "v4": TARGETS["x86_64_v4"].features,
    }
)


_LABELS = MappingProxyType({f"x86_64_{level}": level for level in LEVELS})


def find_level(features: Iterable[str]) -> str | None:
    """Return the lowest x86-64 level that has all of these features.

    None if there is no such level: aes, a feature of haswell, is in none.
    """
    required = frozenset(features)
    return next((level for level, has in LEVELS.items() if required <= has), None)


def choose_label(tuned: Tuned, file: str) -> str:
    """Return the label of a tuned wheel: x86_64_v3 or x86_64_v4, because its stock code needs AVX.

    The level has the features that the kernel libraries require and those that their instructions
    need. For a full build it has only the required features, because code that is selected at run
    time may use others. Raises PublishError if the wheel is for another architecture, if no level
    has one of the features, if the features of an instruction are unknown, or if the instructions
    were not counted.
    """
    other = [spec for spec in tuned.targets if parse_target(spec).family != _NAMESPACE]
    if other:
        raise PublishError(
            f"{file} cannot be a variant: it is for {' and '.join(other)}, and only x86-64 has "
            "levels"
        )
    unproven = sorted(library.name for library in tuned.libraries if not library.census)
    if unproven:
        raise PublishError(
            f"{file} cannot be a variant: no instruction counts for {', '.join(unproven)}",
            hint="Build it again, then run: invoke audit",
        )
    used = {
        name
        for names in (
            *(build.required_features for build in tuned.builds),
            *(library.census for library in tuned.libraries),
        )
        for name in names
        if name != _NAMESPACE  # in the census, this name is for the baseline instructions
    }
    level = find_level(used | STOCK_BASELINE)
    if level is None:
        beyond = ", ".join(sorted(used - LEVELS["v4"]))
        raise PublishError(
            f"{file} cannot be a variant: no x86-64 level is known to have {beyond}",
            hint="Build a wheel for a level: --arch x86_64_v3 or x86_64_v4",
        )
    return f"x86_64_{level}"


def format_variant_name(file: str, label: str) -> str:
    """Return a wheel's file name as a variant: the public version, and the label at the end.

    Raises PublishError if the file name is not a wheel's.
    """
    try:
        name, version, tags = file.removesuffix(".whl").split("-", 2)
        return f"{name}-{Version(version).public}-{tags}-{label}.whl"
    except ValueError as error:
        raise PublishError(f"{file} is not the file name of a wheel") from error


def make_variant(wheel: Path, out_dir: Path) -> Path:
    """Write a tuned wheel as a variant of the plain wheel of its public version.

    The same wheel gives the same bytes. Raises PublishError, WheelError, DiskError or BusyError.
    """
    tuned = read_tuned(wheel)
    if tuned is None:
        raise PublishError(f"{wheel.name} is not a tuned wheel; only tuned wheels become variants")
    label = choose_label(tuned, wheel.name)
    content = {FILE: _build_json([label])}
    return repack(wheel, local=None, label=label, add={}, out_dir=out_dir, dist_info_files=content)


def format_index_name(variant: str) -> str:
    """Return the name of the file that an index serves beside the variants of a release.

    `variant` is the name of one of them.
    """
    name, version, _ = variant.split("-", 2)
    return f"{name}-{version}-variants.json"


def build_index_json(variants: Iterable[str]) -> bytes:
    """Build the JSON that defines the variants of one release, from their file names.

    Raises PublishError for an invalid or repeated name, and for variants of several releases.
    """
    files = sorted(variants)
    if len({*files}) < len(files):
        raise PublishError(f"a variant is listed twice: {', '.join(files)}")
    releases = sorted({format_index_name(file) for file in files})
    if len(releases) != 1:
        raise PublishError(f"variants of {len(releases)} releases: {', '.join(releases)}")
    return _build_json(sorted({_parse_label(file) for file in files}))


def _parse_label(file: str) -> str:
    label = file.removesuffix(".whl").rpartition("-")[2]
    if label not in _LABELS:
        raise PublishError(f"{file} is not the file name of a variant")
    return label


def _build_json(labels: Sequence[str]) -> bytes:
    """Build the JSON of labels: a wheel contains that of its label, the index that of all."""
    content = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: {"requires": [_PROVIDER]}},
        "variants": {label: {_NAMESPACE: {_FEATURE: [_LABELS[label]]}} for label in labels},
    }
    return format_json(content).encode()
