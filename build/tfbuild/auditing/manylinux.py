"""Check a wheel against its platform tag, by the policies of auditwheel.

`auditwheel show` does not suit a tuned wheel. Its kernel library uses TensorFlow's libraries from
the process that loads it, without an RPATH, so auditwheel reports linux_x86_64.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from auditwheel.architecture import Architecture  # type: ignore[import-untyped]
from auditwheel.libc import Libc  # type: ignore[import-untyped]
from auditwheel.policy import WheelPolicies  # type: ignore[import-untyped]

from tfcore.cpus.features import ARCHITECTURES
from tfcore.errors import AuditError

_LOADER = re.compile(r"ld-linux.*\.so\.\d")


Demands = tuple[Mapping[str, str], Collection[str]]
"""The requirements of a library: elf.read_version_floors and elf.list_needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A platform policy: the versions of each runtime family, and the libraries, that every such
    machine has.
    """

    name: str
    versions: Mapping[str, frozenset[str]]
    libraries: frozenset[str]


def find_policy(tags: Collection[str]) -> Policy | None:
    """Return the policy of the oldest platform that the tags name, such as
    manylinux_2_17_x86_64.

    None for linux_x86_64, which has no policy.

    Raises AuditError for a platform that auditwheel does not know.
    """
    platforms = sorted({tag.rpartition("-")[2] for tag in tags})
    policies = [
        _load_policy(platform) for platform in platforms if not platform.startswith("linux_")
    ]
    return min(policies, key=lambda policy: len(policy.versions["GLIBC"]), default=None)


def choose_platform(machine: str, libraries: Mapping[str, Demands]) -> str:
    """Return the platforms of the oldest policy that a wheel's libraries comply with.

    They are as in a file name: manylinux_2_17_x86_64.manylinux2014_x86_64. If the libraries
    comply with none, it is linux_x86_64, which promises nothing: PyPI refuses such a wheel, and
    pip installs it on any Linux of the machine, whatever its C library. `libraries` are by
    their file names.
    """
    beside = frozenset(libraries)
    for known in sorted(
        _load_policies(machine), key=lambda candidate: candidate.priority, reverse=True
    ):
        policy = _convert_policy(known)
        if policy.versions and not any(
            any(find_breaches(policy, floors, needed, beside))
            for floors, needed in libraries.values()
        ):
            return ".".join((policy.name, *known.aliases))
    return f"linux_{machine}"


def find_breaches(
    policy: Policy, floors: Mapping[str, str], needed: Collection[str], beside: Collection[str]
) -> Iterator[str]:
    """Yield the requirements of a library that the policy does not permit: versions of runtime
    libraries (elf.read_version_floors), and libraries that are neither in it nor `beside` it
    in the wheel.
    """
    for family, version in floors.items():
        if version not in policy.versions.get(family, ()):
            yield f"it requires {family} {version}, which {policy.name} does not permit"
    for name in needed:
        if not (name in policy.libraries or name in beside or _LOADER.fullmatch(name)):
            yield f"it needs {name}, which {policy.name} does not permit"


def _load_policy(platform: str) -> Policy:
    machine = next(
        (architecture for architecture in ARCHITECTURES if platform.endswith(architecture)), ""
    )
    try:
        return _convert_policy(_load_policies(machine).get_policy_by_name(platform))
    except (LookupError, ValueError) as error:
        raise AuditError(f"auditwheel does not know the platform {platform}") from error


def _load_policies(machine: str) -> Any:  # noqa: ANN401  (auditwheel has no types)
    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine))


def _convert_policy(known: Any) -> Policy:  # noqa: ANN401
    return Policy(name=known.name, versions=known.symbol_versions, libraries=known.whitelist)
