"""Experimental: a tuned wheel as a variant of the plain one, for an x86-64 level.

PEP 825 gives a wheel's file name a label and the wheel a `variant.json`, which says what the label
means; PEP 850 says who can tell whether a host has it. Both are drafts. An installer that does not
know them passes such a file over, and takes the plain wheel of the same version beside it.

Levels are all that installers can tell of a CPU today (uv 0.13 knows x86_64 :: level :: v1 to v4),
so a wheel may only be a variant when every instruction in it is within a level. That is decided by
the census of its kernel libraries, which `invoke audit` has held against their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType

from archspec.cpu import TARGETS
from packaging.version import Version

from tfbuild.cpus.features import STOCK_BASELINE
from tfbuild.errors import PublishError
from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import Tuned, read_tuned
from tfbuild.records import format_json

SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
FILE = "variant.json"

_NAMESPACE = "x86_64"
_FEATURE = "level"
_PROVIDER = "x86-64-variant-provider"
"""Who knows the levels. uv has its own code for this name; no package of it needs to exist."""

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

    None if no level has them (aes of haswell).
    """
    required = frozenset(features)
    return next((level for level, has in LEVELS.items() if required <= has), None)


def choose_label(tuned: Tuned, file: str) -> str:
    """Return the label of a tuned wheel: x86_64_v3 or x86_64_v4, as its stock code needs AVX.

    It covers the features that its kernel libraries require and those that their instructions
    need; for a full build only the features that it requires, since code that is chosen at
    run time may use others. Raises PublishError if no level has one of them, if it is unknown
    what an instruction needs, and if the instructions were not counted.
    """
    unproven = sorted(library.name for library in tuned.libraries if not library.census)
    if unproven:
        raise PublishError(
            f"{file} can be no variant: nobody counted the instructions of {', '.join(unproven)}",
            hint="Build it anew, then run: invoke audit",
        )
    used = {
        name
        for names in (
            *(build.required_features for build in tuned.builds),
            *(library.census for library in tuned.libraries),
        )
        for name in names
        if name != _NAMESPACE  # the census has what every x86-64 CPU runs under this name
    }
    level = find_level(used | STOCK_BASELINE)
    if level is None:
        beyond = ", ".join(sorted(used - LEVELS["v4"]))
        raise PublishError(
            f"{file} can be no variant: no x86-64 level is known to have {beyond}",
            hint="Build one for a level: --arch x86_64_v3, or x86_64_v4",
        )
    return f"x86_64_{level}"


def format_variant_name(file: str, label: str) -> str:
    """Return a wheel's file name as a variant: of the public version, with the label at the end.

    Raises PublishError if the file name is not a wheel's.
    """
    try:
        name, version, tags = file.removesuffix(".whl").split("-", 2)
        return f"{name}-{Version(version).public}-{tags}-{label}.whl"
    except ValueError as error:
        raise PublishError(f"{file} is not the name of a wheel") from error


def make_variant(wheel: Path, out_dir: Path) -> Path:
    """Write a tuned wheel as a variant of the plain wheel of its public version.

    The same wheel gives the same bytes. Raises PublishError, WheelError, DiskError or BusyError.
    """
    tuned = read_tuned(wheel)
    if tuned is None:
        raise PublishError(f"{wheel.name} is not a tuned wheel, so it is the plain one")
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
    """Build the JSON that says what the variants of one release mean, by their file names.

    Raises PublishError if a name is no variant's or there twice, or they are of several
    releases.
    """
    files = sorted(variants)
    if len({*files}) < len(files):
        raise PublishError(f"a variant is there twice: {', '.join(files)}")
    releases = sorted({format_index_name(file) for file in files})
    if len(releases) != 1:
        raise PublishError(f"variants of {len(releases)} releases: {', '.join(releases)}")
    return _build_json(sorted({_parse_label(file) for file in files}))


def _parse_label(file: str) -> str:
    label = file.removesuffix(".whl").rpartition("-")[2]
    if label not in _LABELS:
        raise PublishError(f"{file} is not the name of a variant")
    return label


def _build_json(labels: Sequence[str]) -> bytes:
    """Build the JSON of some labels; the wheel holds that of its label, the index that of all."""
    content = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: {"requires": [_PROVIDER]}},
        "variants": {label: {_NAMESPACE: {_FEATURE: [_LABELS[label]]}} for label in labels},
    }
    return format_json(content).encode()
