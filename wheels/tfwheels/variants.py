"""Experimental: convert a tuned wheel to a variant of the plain wheel, for a level of CPUs.

PEP 825 adds a label to a wheel's file name, and a `variant.json` that defines the label to the
wheel. PEP 850 defines which program detects whether a host has it. Both are drafts. An installer
without support skips such a file and takes the plain wheel of the same version beside it.

Today, installers detect only the level of a CPU: uv 0.13.9 knows x86_64 :: level :: v1 to v4, and
aarch64 :: version :: 8a to 8.4a. So a wheel can be a variant only if every instruction in it is
within a level. The census of its kernel libraries shows this; `invoke audit` has compared the
census with their bytes.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from archspec.cpu import TARGETS
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import Tuned, read_tuned
from tfcore.cpus.targets import parse_target
from tfcore.errors import PublishError
from tfcore.records import format_json
from tfwheels.wheel_choice import STOCK_NEEDS, list_families

SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
FILE = "variant.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """The levels that installers detect in an architecture, lowest first, and their features.

    `feature` is their name in the namespace of the architecture. uv implements the `provider`
    itself; no package of this name needs to exist. `noun` and `targets` are for messages.
    """

    feature: str
    provider: str
    noun: str
    targets: str
    features: Mapping[str, frozenset[str]]


_ARM_VERSIONS = {
    "8a": {"fp", "asimd"},
    "8.1a": {"crc32", "atomics", "asimdrdm"},
    "8.2a": {"dcpop"},
    "8.3a": {"fcma", "jscvt", "lrcpc", "paca", "pacg"},
    "8.4a": {"asimddp", "dit", "flagm", "ilrcpc", "uscat"},
}
"""The features that a version of the Arm architecture adds and that all its CPUs have.

From LLVM (HasV8_1aOps to HasV8_4aOps in AArch64Features.td: CRC, LSE, RDM, CCPP, ComplxNum, JS,
RCPC, PAuth, DotProd, DIT, FlagM, RCPC_IMMO, LSE2); Linux needs fp and asimd. uv 0.13.9 reports
8.1a and later only if the CPU has all of these; for 8.4a it also requires fphp, asimdhp and
asimdfhm. It knows no later version than 8.4a.
"""

LEVELS = MappingProxyType(
    {
        "x86_64": Levels(
            feature="level",
            provider="x86-64-variant-provider",
            noun="x86-64 level",
            targets="x86_64_v3 or x86_64_v4",
            features={
                # archspec lists nothing for x86_64; these are the psABI's.
                "v1": frozenset({"mmx", "sse", "sse2"}),
                "v2": TARGETS["x86_64_v2"].features,
                "v3": TARGETS["x86_64_v3"].features,
                "v4": TARGETS["x86_64_v4"].features,
            },
        ),
        "aarch64": Levels(
            feature="version",
            provider="aarch64-variant-provider",
            noun="version of the Arm architecture up to 8.4a",
            targets="armv8.1a, armv8.3a or armv8.4a",
            features=dict(
                zip(
                    _ARM_VERSIONS,
                    itertools.accumulate(map(frozenset, _ARM_VERSIONS.values()), operator.or_),
                    strict=True,
                )
            ),
        ),
    }
)
"""By architecture, in the order of the namespaces in every variant.json: see `_build_json`."""

_LABELS = MappingProxyType(
    {
        f"{family}_{level}": (family, level)
        for family, levels in LEVELS.items()
        for level in levels.features
    }
)


def find_level(features: Iterable[str], family: str) -> str | None:
    """Return the lowest level of an architecture that has all of these features.

    None if there is no such level: aes, a feature of haswell and of neoverse_n1, is in none.
    """
    required = frozenset(features)
    levels = LEVELS[family].features
    return next((level for level, has in levels.items() if required <= has), None)


def choose_label(tuned: Tuned, file: str) -> str:
    """Return the label of a tuned wheel: on x86-64 at least x86_64_v3, as its stock code needs AVX.

    The level has the features that the kernel libraries require and those that their instructions
    need. For a full build it has only the required features, because code that is selected at run
    time may use others. Raises PublishError if the tags in the wheel's file name are for another
    architecture than its targets, if no level has one of the features, if the features of an
    instruction are unknown, or if the instructions were not counted.
    """
    family = _require_family(tuned, file)
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
        if name != family  # in the census, this name is for the baseline instructions
    }
    levels = LEVELS[family]
    level = find_level(used | STOCK_NEEDS[family], family)
    if level is None:
        beyond = ", ".join(sorted(used - frozenset().union(*levels.features.values())))
        raise PublishError(
            f"{file} cannot be a variant: no {levels.noun} is known to have {beyond}",
            hint=f"Build a wheel for a level: --arch {levels.targets}",
        )
    return f"{family}_{level}"


def _require_family(tuned: Tuned, file: str) -> str:
    """Return the architecture of a wheel.

    Raises PublishError if its targets and its tags are not all of the same one.
    """
    families = {parse_target(spec).family for spec in tuned.targets}
    tagged = list_families(_parse_tags(file))
    if families != tagged or len(families) != 1:
        raise PublishError(
            f"{file} cannot be a variant: it is for {' and '.join(tuned.targets)}, and its tags "
            f"are for {' and '.join(sorted(tagged)) or 'no known machine'}"
        )
    return families.pop()


def _parse_tags(file: str) -> tuple[str, ...]:
    try:
        return tuple(map(str, parse_wheel_filename(file)[3]))
    except ValueError as error:
        raise _create_name_error(file) from error


def _create_name_error(file: str) -> PublishError:
    return PublishError(f"{file} is not the file name of a wheel")


def format_variant_name(file: str, label: str) -> str:
    """Return a wheel's file name as a variant: the public version, and the label at the end.

    Raises PublishError if the file name is not a wheel's.
    """
    try:
        name, version, tags = file.removesuffix(".whl").split("-", 2)
        return f"{name}-{Version(version).public}-{tags}-{label}.whl"
    except ValueError as error:
        raise _create_name_error(file) from error


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
    """Build the JSON of labels: a wheel contains that of its label, the index that of all.

    The namespaces of one wheel of a release must be the first of those of another (PEP 825,
    "Metadata consistency"). So a wheel for aarch64 names x86_64 too.
    """
    last = max(map(list(LEVELS).index, (_LABELS[label][0] for label in labels)))
    families = list(LEVELS)[: last + 1]
    variants = {
        label: {family: {LEVELS[family].feature: [level]}}
        for label in labels
        for family, level in (_LABELS[label],)
    }
    content = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": families},
        "providers": {family: {"requires": [LEVELS[family].provider]} for family in families},
        "variants": variants,
    }
    return format_json(content).encode()
