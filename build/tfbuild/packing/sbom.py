"""Write the software bill of materials of a tuned wheel as CycloneDX JSON.

It lists what the wheel contains in addition to the stock wheel. PEP 770 defines its folder in
dist-info; METADATA does not list it. The recommended creation time is omitted, because the same
plan must give the same bytes.
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
from tfcore.records import hash_record

FILE = "sboms/tensorwright.cdx.json"
"""Path in dist-info; `.cdx.json` is the suffix of CycloneDX files."""


def render_document(
    tuned: Tuned,
    *,
    package: str,
    version: str,
    stock_file: str,
    compiled: Iterable[HeaderLibrary],
) -> bytes:
    """Return the bytes of FILE for `version` of `package`: the stock wheel that it descends
    from, its kernel libraries, what they are compiled from, and the tools.
    """
    wheel = _build_wheel(
        package,
        version,
        Pedigree(
            ancestors=[_build_stock(tuned, package, stock_file)],
            notes="The components listed are what it holds beside its ancestor's content.",
        ),
    )
    sources = _build_sources(tuned, f"The kernel sources, from {tuned.source_file}")
    inputs = [sources, *(_build_headers(item) for item in compiled)]
    libraries = [_build_library(item, version, inputs) for item in tuned.libraries]
    return _render_bom(tuned, wheel, libraries, inputs)


def render_full_build_document(
    tuned: Tuned, tree: TunedTree, *, package: str, version: str
) -> bytes:
    """Return the bytes of FILE for a full build: its libraries, the archive that they are
    compiled from, and the tools. Archives that TensorFlow's build downloads are not listed.
    """
    wheel = _build_wheel(
        package,
        version,
        Pedigree(
            notes="The archives that TensorFlow's own build fetches and compiles in are not "
            "listed: its WORKSPACE pins them."
        ),
    )
    sources = _build_sources(tuned, f"TensorFlow's sources, from {tuned.source_file}")
    properties = {
        "target": tree.target,
        "required_features": " ".join(tree.required_features),
        "flags": " ".join(tree.flags),
        "plan_key": tree.plan_key,
        **tree.options,
    }
    libraries = [
        _build_file(name, version, tree.libraries[name].sha256, [sources], properties)
        for name in sorted(tree.libraries)
    ]
    return _render_bom(tuned, wheel, libraries, [sources])


def _build_wheel(package: str, version: str, pedigree: Pedigree) -> Component:
    return Component(
        bom_ref="wheel",
        type=ComponentType.LIBRARY,
        name=package,
        version=version,
        purl=PackageURL("pypi", name=package, version=version),
        licenses=[LicenseExpression(APACHE)],
        pedigree=pedigree,
    )


def _render_bom(
    tuned: Tuned, wheel: Component, libraries: Sequence[Component], inside: Sequence[Component]
) -> bytes:
    """Return the document of a wheel with these libraries, each compiled from all of `inside`."""
    targets = _build_targets()
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{wheel.purl}#{hash_record(tuned)}"),
        metadata=BomMetaData(component=wheel, tools=ToolRepository(components=_list_tools(tuned))),
        components=[*libraries, *inside, targets],
    )
    bom.metadata.timestamp = None  # type: ignore[assignment]  # (optional in the schema)
    bom.register_dependency(wheel, [*libraries, targets])
    for library in libraries:
        bom.register_dependency(library, inside)
    return (JsonV1Dot6(bom).output_as_string(indent=2) + "\n").encode()


def _build_stock(tuned: Tuned, package: str, file: str) -> Component:
    return Component(
        bom_ref="stock",
        type=ComponentType.LIBRARY,
        name=package,
        version=tuned.release,
        purl=PackageURL(
            "pypi", name=package, version=tuned.release, qualifiers={"file_name": file}
        ),
        hashes=_build_hashes(tuned.stock_sha256),
        licenses=[LicenseExpression(APACHE)],
    )


def _build_sources(tuned: Tuned, description: str) -> Component:
    """Return the release's archive; a user's own checkout has no hash, and is not the release."""
    release = PackageURL("github", "tensorflow", "tensorflow", f"v{tuned.release}")
    return Component(
        bom_ref="sources",
        type=ComponentType.LIBRARY,
        name="tensorflow",
        version=tuned.release,
        description=description,
        purl=release if tuned.source_sha256 else None,
        hashes=_build_hashes(tuned.source_sha256),
        licenses=[LicenseExpression(APACHE)],
    )


def _build_headers(compiled: HeaderLibrary) -> Component:
    return Component(
        bom_ref=compiled.name,
        type=ComponentType.LIBRARY,
        name=compiled.name,
        version=compiled.version,
        description=f"Headers, from {' and '.join(compiled.folders)}",
        purl=PackageURL.from_string(compiled.purl),
        licenses=[LicenseExpression(compiled.licence)],
    )


def _build_targets() -> Component:
    return Component(
        bom_ref="archspec",
        type=ComponentType.DATA,
        name="archspec",
        version=ARCHSPEC,
        description=f"Its table of targets, in {guard.DATA}",
        purl=PackageURL("pypi", name="archspec", version=ARCHSPEC),
        licenses=[LicenseExpression(APACHE)],
    )


def _build_library(library: KernelLibrary, version: str, inside: Iterable[Component]) -> Component:
    properties = {
        "target": library.target,
        "required_features": " ".join(library.required_features),
        "flags": " ".join(library.flags),
        "kernels": " ".join(library.kernels),
        "plan_key": library.plan_key,
    }
    return _build_file(library.file, version, library.sha256, inside, properties)


def _build_file(
    name: str, version: str, sha256: str, inside: Iterable[Component], values: Mapping[str, str]
) -> Component:
    licences = {str(licence.value) for part in inside for licence in part.licenses}
    return Component(
        bom_ref=name,
        type=ComponentType.FILE,
        name=name,
        version=version,
        hashes=_build_hashes(sha256),
        licenses=[LicenseExpression(" AND ".join(sorted(licences)))],
        properties=_build_properties(values),
    )


def _list_tools(tuned: Tuned) -> Iterable[Component]:
    compiler, _, version = tuned.compiler.partition(" ")
    names = {"Tensorwright": tfbuild.__version__, compiler: version, "Bazel": tuned.bazel}
    return [
        Component(
            bom_ref=f"tool:{name}", type=ComponentType.APPLICATION, name=name, version=tool_version
        )
        for name, tool_version in names.items()
    ]


def _build_hashes(digest: str) -> Iterable[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []


def _build_properties(values: Mapping[str, str]) -> Iterable[Property]:
    return [Property(name=f"tensorwright:{name}", value=value) for name, value in values.items()]
