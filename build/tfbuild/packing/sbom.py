"""What is in a tuned wheel beside the stock wheel's content, as CycloneDX JSON. Pure.

PEP 770 gives it a folder in dist-info, and METADATA says nothing of it. The time of creation that
it recommends is left out: the same plan must give the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Pedigree
from cyclonedx.model.license import LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

import tfbuild
from tfbuild.packing.notices import APACHE, ARCHSPEC, HeaderLibrary
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.planning import guard
from tfbuild.records import hash_record

FILE = "sboms/tensorwright.cdx.json"
"""In dist-info. `.cdx.json` is CycloneDX's own suffix."""


def document(
    tuned: Tuned,
    *,
    package: str,
    version: str,
    stock_file: str,
    compiled: Iterable[HeaderLibrary],
) -> bytes:
    """The bytes of FILE for `version` of `package`: the stock wheel that it descends from, its
    kernel libraries, what they are compiled from, and the tools."""
    wheel = _wheel(
        package,
        version,
        Pedigree(
            ancestors=[_stock(tuned, package, stock_file)],
            notes="The components listed are what it holds beside its ancestor's content.",
        ),
    )
    sources = _sources(tuned, f"The kernel sources, from {tuned.source_file}")
    inside = [sources, *(_headers(each) for each in compiled)]
    libraries = [_library(each, version, inside) for each in tuned.libraries]
    return _written(tuned, wheel, libraries, inside)


def full_build_document(tuned: Tuned, tree: TunedTree, *, package: str, version: str) -> bytes:
    """The bytes of FILE for a full build: its libraries, the archive that they are
    compiled from, and the tools. What TensorFlow's build fetches itself is not listed."""
    wheel = _wheel(
        package,
        version,
        Pedigree(
            notes="The archives that TensorFlow's own build fetches and compiles in are not "
            "listed: its WORKSPACE pins them."
        ),
    )
    sources = _sources(tuned, f"TensorFlow's sources, from {tuned.source_file}")
    said = {
        "target": tree.target,
        "required_features": " ".join(tree.required_features),
        "flags": " ".join(tree.flags),
        "plan_key": tree.plan_key,
        **tree.options,
    }
    libraries = [
        _file(name, version, tree.libraries[name].sha256, [sources], said)
        for name in sorted(tree.libraries)
    ]
    return _written(tuned, wheel, libraries, [sources])


def _wheel(package: str, version: str, pedigree: Pedigree) -> Component:
    return Component(
        bom_ref="wheel",
        type=ComponentType.LIBRARY,
        name=package,
        version=version,
        purl=PackageURL("pypi", name=package, version=version),
        licenses=[LicenseExpression(APACHE)],
        pedigree=pedigree,
    )


def _written(
    tuned: Tuned, wheel: Component, libraries: Sequence[Component], inside: Sequence[Component]
) -> bytes:
    """The document of a wheel with these libraries, of which each is compiled from all `inside`."""
    targets = _targets()
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{wheel.purl}#{hash_record(tuned)}"),
        metadata=BomMetaData(component=wheel, tools=ToolRepository(components=_tools(tuned))),
        components=[*libraries, *inside, targets],
    )
    bom.metadata.timestamp = None  # type: ignore[assignment]  # (optional in the schema)
    bom.register_dependency(wheel, [*libraries, targets])
    for library in libraries:
        bom.register_dependency(library, inside)
    return (JsonV1Dot6(bom).output_as_string(indent=2) + "\n").encode()


def _stock(tuned: Tuned, package: str, file: str) -> Component:
    return Component(
        bom_ref="stock",
        type=ComponentType.LIBRARY,
        name=package,
        version=tuned.release,
        purl=PackageURL(
            "pypi", name=package, version=tuned.release, qualifiers={"file_name": file}
        ),
        hashes=_sha256(tuned.stock_sha256),
        licenses=[LicenseExpression(APACHE)],
    )


def _sources(tuned: Tuned, what: str) -> Component:
    """The release's archive; a checkout of the user's own has no hash, and is not the release."""
    known = PackageURL("github", "tensorflow", "tensorflow", f"v{tuned.release}")
    return Component(
        bom_ref="sources",
        type=ComponentType.LIBRARY,
        name="tensorflow",
        version=tuned.release,
        description=what,
        purl=known if tuned.source_sha256 else None,
        hashes=_sha256(tuned.source_sha256),
        licenses=[LicenseExpression(APACHE)],
    )


def _headers(compiled: HeaderLibrary) -> Component:
    return Component(
        bom_ref=compiled.name,
        type=ComponentType.LIBRARY,
        name=compiled.name,
        version=compiled.version,
        description=f"Headers, from {' and '.join(compiled.folders)}",
        purl=PackageURL.from_string(compiled.purl),
        licenses=[LicenseExpression(compiled.licence)],
    )


def _targets() -> Component:
    return Component(
        bom_ref="archspec",
        type=ComponentType.DATA,
        name="archspec",
        version=ARCHSPEC,
        description=f"Its table of targets, in {guard.DATA}",
        purl=PackageURL("pypi", name="archspec", version=ARCHSPEC),
        licenses=[LicenseExpression(APACHE)],
    )


def _library(library: KernelLibrary, version: str, inside: Iterable[Component]) -> Component:
    said = {
        "target": library.target,
        "required_features": " ".join(library.required_features),
        "flags": " ".join(library.flags),
        "kernels": " ".join(library.kernels),
        "plan_key": library.plan_key,
    }
    return _file(library.file, version, library.sha256, inside, said)


def _file(
    name: str, version: str, sha256: str, inside: Iterable[Component], said: Mapping[str, str]
) -> Component:
    licences = {str(each.value) for part in inside for each in part.licenses}
    return Component(
        bom_ref=name,
        type=ComponentType.FILE,
        name=name,
        version=version,
        hashes=_sha256(sha256),
        licenses=[LicenseExpression(" AND ".join(sorted(licences)))],
        properties=_properties(said),
    )


def _tools(tuned: Tuned) -> Iterable[Component]:
    compiler, _, version = tuned.compiler.partition(" ")
    names = {"Tensorwright": tfbuild.__version__, compiler: version, "Bazel": tuned.bazel}
    return [
        Component(bom_ref=f"tool:{name}", type=ComponentType.APPLICATION, name=name, version=each)
        for name, each in names.items()
    ]


def _sha256(digest: str) -> Iterable[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []


def _properties(values: Mapping[str, str]) -> Iterable[Property]:
    return [Property(name=f"tensorwright:{name}", value=value) for name, value in values.items()]
