from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from cyclonedx.exception import MissingOptionalDependencyException
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tests.builders.index_wheels import tuned_for
from tests.builders.notices import COMPILED

from tfbuild.packing.sbom import render_document
from tfbuild.packing.tuned import Tuned
from tfcore.settings import ROOT

FLEET = tuned_for(("zen4", "haswell"))
VERSION = "2.14.1+fleet.of1"


def bytes_of(tuned: Tuned = FLEET, version: str = VERSION) -> bytes:
    return render_document(
        tuned,
        package="tensorflow-cpu",
        version=version,
        stock_file="stock.whl",
        compiled=COMPILED,
    )


@pytest.fixture(name="bom", scope="module")
def parsed() -> dict[str, Any]:
    bom = json.loads(bytes_of())
    assert isinstance(bom, dict)
    return bom


def sha256(component: dict[str, Any]) -> str:
    (only,) = component["hashes"]
    assert only["alg"] == "SHA-256"
    return str(only["content"])


def references(node: object) -> list[str]:
    """Every bom-ref in the document."""
    if isinstance(node, dict):
        own_references = [node["bom-ref"]] if "bom-ref" in node else []
        return own_references + [ref for child in node.values() for ref in references(child)]
    return [ref for child in node for ref in references(child)] if isinstance(node, list) else []


def test_it_follows_the_schema() -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    try:
        wrong = validator.validate_str('{"bomFormat": "CycloneDX"}')
    except MissingOptionalDependencyException:
        pytest.skip("needs cyclonedx-python-lib[json-validation]")
    assert wrong is not None
    assert validator.validate_str(bytes_of().decode()) is None


def test_the_wheel_descends_from_the_stock_wheel(bom: dict[str, Any]) -> None:
    wheel = bom["metadata"]["component"]
    assert wheel["purl"] == "pkg:pypi/tensorflow-cpu@2.14.1%2Bfleet.of1"
    assert wheel["version"] == VERSION
    (ancestor,) = wheel["pedigree"]["ancestors"]
    assert ancestor["purl"] == "pkg:pypi/tensorflow-cpu@2.14.1?file_name=stock.whl"
    assert sha256(ancestor) == FLEET.stock_sha256


def test_every_kernel_library_is_a_file_with_its_hash_and_flags(bom: dict[str, Any]) -> None:
    files = {
        component["name"]: component
        for component in bom["components"]
        if component["type"] == "file"
    }
    assert set(files) == {library.file for library in FLEET.libraries}
    for library in FLEET.libraries:
        assert sha256(files[library.file]) == library.sha256
        properties = {prop["name"]: prop["value"] for prop in files[library.file]["properties"]}
        assert properties["tensorwright:target"] == library.target
        assert properties["tensorwright:flags"].split() == list(library.flags)
        assert properties["tensorwright:required_features"].split() == list(
            library.required_features
        )
        assert files[library.file]["licenses"] == [{"expression": "Apache-2.0 AND MPL-2.0"}]


def test_sources_and_headers_are_what_the_libraries_are_made_of(bom: dict[str, Any]) -> None:
    graph = {
        dependency["ref"]: dependency.get("dependsOn", []) for dependency in bom["dependencies"]
    }
    assert set(graph["wheel"]) == {"archspec", *(library.file for library in FLEET.libraries)}
    for library in FLEET.libraries:
        assert set(graph[library.file]) == {"sources", "Eigen", "Abseil"}
    by_ref = {component["bom-ref"]: component for component in bom["components"]}
    assert sha256(by_ref["sources"]) == FLEET.source_sha256
    assert "sources.tar.xz" in by_ref["sources"]["description"]
    assert by_ref["Eigen"]["licenses"] == [{"expression": "MPL-2.0"}]


def test_every_reference_is_unique_and_known(bom: dict[str, Any]) -> None:
    actual = references(bom)
    assert len(set(actual)) == len(actual)
    assert {dependency["ref"] for dependency in bom["dependencies"]} <= set(actual)


def test_it_names_the_tools_and_no_time(bom: dict[str, Any]) -> None:
    tools = {
        component["name"]: component["version"]
        for component in bom["metadata"]["tools"]["components"]
    }
    family, version = FLEET.compiler.split(" ")
    assert tools[family] == version
    assert tools["Bazel"] == FLEET.bazel
    assert "Tensorwright" in tools
    assert "timestamp" not in bom["metadata"]


AGAIN = """
import sys
from tests.tfbuild.packing.test_sbom import bytes_of
sys.stdout.buffer.write(bytes_of())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_writes_the_same_bytes(seed: str) -> None:
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "build", "wheels"))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", AGAIN], env=env, check=True, capture_output=True)
    assert done.stdout == bytes_of()


def test_another_wheel_is_another_document() -> None:
    documents = [
        bytes_of(),
        bytes_of(version="2.14.1+other"),
        bytes_of(tuned_for(("haswell", "zen4"))),
    ]
    serials = {json.loads(document)["serialNumber"] for document in documents}
    assert len(serials) == 3
