"""A wheel that was really built, made again of what it says, and wheels that say something else."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.invoke_calls import Tasks
from tests.builders.own_cpu import OwnCpu
from tests.builders.plans import fleet_for
from tests.builders.signing_keys import key_file

from tfbuild import handlers
from tfbuild.binaries import census, elf
from tfbuild.commands import AuditOptions, Request
from tfbuild.kernelbuild import assemble
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.proof import Proof, RebuildResult
from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import KernelLibrary, read_tuned
from tfbuild.packing.wheel import read_member
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfcore.settings import Paths
from tfwheels.keys import read_signing_key
from tfwheels.rebuild_statement import read_statement

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels]

DISPATCHER = "tensorflow/core/kernels/libtfkernel_tensorwright.so"
Doctored = Callable[..., Path]


@pytest.fixture(scope="module")
def invoke(tmp_path_factory: pytest.TempPathFactory, paths: Paths) -> Tasks:
    tasks = Tasks(tmp_path_factory.mktemp("again"))
    tasks.env["TENSORWRIGHT_CACHE"] = str(paths.cache)
    return tasks


def library_of(tried: Tried) -> KernelLibrary:
    facts = read_tuned(tried.built.wheel)
    assert facts is not None
    return facts.libraries[0]


@pytest.fixture(scope="module")
def doctored(stock_arm: Environment, staged: Path) -> Doctored:
    """The wheel with other members, its first library's fields in tuned.json, and all that follows
    from these mended."""

    def made(tried: Tried, folder: Path, members: dict[str, bytes], **fields: object) -> Path:
        facts = read_tuned(tried.built.wheel)
        assert facts is not None
        first, *other_values = facts.libraries
        first = dataclasses.replace(first, **fields)  # type: ignore[arg-type]
        facts = dataclasses.replace(facts, libraries=(first, *other_values))
        info = f"tensorflow_cpu-{tried.fleet.version}.dist-info"
        papers = assemble.render_metadata(facts, tried.fleet, stock_arm.wheel, staged)
        changed = members | {f"{info}/{name}": content for name, content in papers.items()}
        edits = {name: lambda _, content=content: content for name, content in changed.items()}
        return repack(
            tried.built.wheel,
            local=tried.fleet.local,
            add={},
            out_dir=folder,
            dist_info_files={},
            edit=edits,
        )

    return made


def again(wheel: Path, source: str = "") -> RebuildResult:
    """In the cache that the tests build in."""
    return handlers.rebuild_wheel(AuditOptions(wheel=str(wheel), source=source))


def test_the_wheel_is_made_again_byte_for_byte(native: Tried) -> None:
    wheel = native.built.wheel
    before = wheel.stat().st_mtime_ns, hash_file(wheel)
    rebuild_result = again(wheel)
    assert rebuild_result.proof is Proof.SAME, rebuild_result
    assert rebuild_result.compiler == f"{native.plan.compiler} {native.plan.compiler_version}"
    assert [step.target for step in rebuild_result.steps] == [native.plan.target.spec]
    assert (wheel.stat().st_mtime_ns, hash_file(wheel)) == before


def test_a_rebuilder_signs_that_the_bytes_are_the_same(
    invoke: Tasks, native: Tried, tmp_path: Path
) -> None:
    wheel = Path(shutil.copy2(native.built.wheel, tmp_path))
    key = key_file(tmp_path)
    words = ("audit", str(wheel), "--rebuild", "--sign", str(key))
    done = invoke(*words)
    assert done.returncode == 0, done.stderr
    assert f"{wheel.name}.rebuilt" in done.stderr
    assert read_statement(wheel, hash_file(wheel), (read_signing_key(key).public,))
    refused = invoke("audit", str(wheel), "--sign", str(key))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--sign needs --rebuild" in refused.stderr


def test_what_would_be_made_again_is_said_and_not_done(invoke: Tasks, native: Tried) -> None:
    done = invoke("audit", str(native.built.wheel), "--rebuild", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert native.plan.key[:16] in done.stdout
    assert "with an empty cache" in done.stdout
    done = invoke("audit", str(native.built.wheel), "--dry-run")
    assert done.returncode == 2
    assert "--rebuild" in done.stderr


@pytest.mark.slow
def test_a_flipped_byte_of_a_kernel_is_found(
    invoke: Tasks, native: Tried, doctored: Doctored, tmp_path: Path
) -> None:
    """All that vouches for it was mended; the audit alone cannot see it."""
    library = library_of(native)
    content = bytearray(read_member(native.built.wheel, library.file))
    path = tmp_path / "library.so"
    path.write_bytes(content)
    code = elf.read_code(path)
    text = next(section for section in code.sections if section.name == ".text")
    # An immediate or a displacement: no other instruction comes of it.
    for place in range(text.offset + text.size // 2, text.offset + text.size):
        content[place] ^= 1
        path.write_bytes(content)
        if census.count_instructions(path) == dict(library.census):
            break
        content[place] ^= 1
    wheel = doctored(
        native, tmp_path / "out", {library.file: bytes(content)}, sha256=hash_file(path)
    )
    done = invoke("audit", str(wheel), "--rebuild")
    assert "The audit passed." in done.stdout
    assert "rebuild: other bytes" in done.stdout
    assert f"differs from byte {place:,} on, in .text" in done.stdout
    assert done.returncode == 34


@pytest.mark.slow
def test_other_code_in_the_dispatcher_is_found(
    native: Tried, doctored: Doctored, tmp_path: Path
) -> None:
    path = tmp_path / "dispatcher.so"
    path.write_bytes(read_member(native.built.wheel, DISPATCHER))
    text = next(section for section in elf.read_code(path).sections if section.name == ".text")
    content, place = bytearray(path.read_bytes()), text.offset + text.size // 2
    content[place] ^= 1
    rebuild_result = again(doctored(native, tmp_path / "out", {DISPATCHER: bytes(content)}))
    assert rebuild_result.proof is Proof.OTHER
    (line,) = (finding for finding in rebuild_result.findings if finding.startswith(DISPATCHER))
    assert f"differs from byte {place:,} on, in .text" in line


@pytest.mark.slow
def test_kernels_of_other_flags_than_it_says_are_found(
    native: Tried, doctored: Doctored, paths: Paths, tmp_path: Path
) -> None:
    """A wheel of other flags, with the record of the one without them."""
    other_paths = dataclasses.replace(paths, pool=tmp_path / "pool")
    fleet, compiler = fleet_for(Request(kernels="mini", flags="-O1"))
    jobs = handlers.choose_jobs(fleet.first, "")
    built = builder.build_wheel(fleet, compiler=compiler, jobs=jobs, paths=other_paths)
    tried = dataclasses.replace(native, built=built, fleet=fleet)
    assert again(built.wheel).proof is Proof.SAME
    wheel = doctored(tried, tmp_path / "out", {}, source_flags={}, plan_key=native.plan.key)
    rebuild_result = again(wheel)
    assert rebuild_result.proof is Proof.OTHER
    assert any(
        finding.startswith(f"{library_of(native).file} (") for finding in rebuild_result.findings
    )


@pytest.mark.slow
def test_a_fleet_is_made_again(wheel_for: Callable[[str], Tried], own_cpu: OwnCpu) -> None:
    fleet = wheel_for(own_cpu.two_targets)
    rebuild_result = again(fleet.built.wheel)
    assert rebuild_result.proof is Proof.SAME, rebuild_result
    assert tuple(step.target for step in rebuild_result.steps) == fleet.fleet.targets


@pytest.mark.slow
def test_sources_that_were_given_must_be_given_again(
    staged: Path, paths: Paths, tmp_path: Path
) -> None:
    tree = tmp_path / "mine"
    shutil.copytree(staged, tree)
    fleet, compiler = fleet_for(Request(kernels="mini", source=str(tree)))
    built = builder.build_wheel(
        fleet,
        compiler=compiler,
        jobs=handlers.choose_jobs(fleet.first, ""),
        paths=dataclasses.replace(paths, pool=tmp_path / "pool"),
        given_source=tree,
    )
    rebuild_result = again(built.wheel)
    assert (rebuild_result.proof, rebuild_result.compiler) == (Proof.NONE, "")
    assert "from mine, sha256 " in rebuild_result.reasons[0]
    assert again(built.wheel, str(tree)).proof is Proof.SAME


@pytest.mark.slow
def test_fused_units_come_beside_the_hot_kernels_and_are_made_again(
    paths: Paths, tmp_path: Path
) -> None:
    """Nothing of the hot kernels is compiled but what was selected, and the units are whole."""
    units = ("fused/updates", "fused/loops")
    fleet, compiler = fleet_for(Request(kernels=f"hot,{','.join(units)}"))
    built = builder.build_wheel(
        fleet,
        compiler=compiler,
        jobs=handlers.choose_jobs(fleet.first, ""),
        paths=dataclasses.replace(paths, pool=tmp_path),
    )
    facts = read_tuned(built.wheel)
    assert facts is not None
    assert {*units} <= {*facts.kernels}
    (library,) = facts.libraries
    assert library.registrations == fleet.first.selection
    assert again(built.wheel).proof is Proof.SAME
