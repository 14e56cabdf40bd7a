"""A rebuilder's signed statement that a wheel was rebuilt with the same bytes.

It is in `WHEEL.rebuilt` beside the wheel, in the form of the builder's provenance: an in-toto
statement in a PEP 740 object. Its predicate names the compiler and Bazel of the rebuild; the
subject is the name and the hash of the wheel. No time and no path is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfbuild.kernelbuild.proof import Proof, RebuildResult
from tfbuild.upstream.download import hash_file
from tfcore.errors import PublishError
from tfcore.records import format_canonical, write_atomic
from tfwheels.keys import PublicKey, SigningKey
from tfwheels.layout import REBUILT as SUFFIX
from tfwheels.provenance import REBUILT, STATEMENT, sign, verify_statement

_REBUILD = "On the rebuilder's machine, run: invoke audit WHEEL --rebuild --sign KEY"


def write_statement(wheel: Path, result: RebuildResult, key: SigningKey) -> Path:
    """Write the signed statement beside a wheel and return its path.

    Raises ValueError unless the rebuild has the same bytes, DiskError.
    """
    if result.proof is not Proof.SAME:
        raise ValueError(f"the rebuild of {wheel.name} does not have the same bytes")
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": wheel.name, "digest": {"sha256": hash_file(wheel)}}],
        "predicateType": REBUILT,
        "predicate": {
            "rebuilder": {"id": key.public.builder},
            "compiler": result.compiler,
            "bazel": result.bazel,
        },
    }
    path = wheel.with_name(wheel.name + SUFFIX)
    write_atomic(path, sign(format_canonical(statement).encode(), key))
    return path


def read_statement(wheel: Path, sha256: str, rebuilders: Sequence[PublicKey]) -> bytes:
    """Return the statement beside a wheel.

    Raises PublishError unless one of the rebuilders signed it.
    """
    path = wheel.with_name(wheel.name + SUFFIX)
    if not path.is_file():
        raise PublishError(f"{wheel.name} has no statement of a rebuilder", hint=_REBUILD)
    data = path.read_bytes()
    verify_statement(data, wheel.name, sha256, rebuilders, REBUILT)
    return data
