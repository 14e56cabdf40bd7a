"""What a wheel carries to make a fallback an error: alone, and in a package that stands in for
TensorFlow's."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import archspec.cpu
import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.dispatchers import ABSENT, PRESENT, install, on_x86_64, target
from tests.builders.guards import STAND_IN
from tests.builders.recorded_cpus import COMPLETE, cpu_of, text_of

from tfbuild.planning import guard
from tfbuild.planning.defaults import Default, DefaultLever
from tfbuild.planning.dispatcher import LIBRARY, DispatchTarget
from tfbuild.planning.guard import (
    DEFAULTS_DATA,
    FIRST,
    INIT,
    NEEDS,
    amend_init,
    build_defaults_file,
    build_full_wheel_files,
    build_guard_files,
)
from tfbuild.shipped._tensorwright import describe_wheel_page, find_target
from tfbuild.shipped._tensorwright_cpu import list_missing
from tfcore.cpus.cpu import parse_cpuinfo, read_cpu
from tfcore.cpus.features import ARCHITECTURES, filter_codegen, load_features
from tfcore.cpus.targets import match_cpu, parse_target
from tfcore.errors import TargetError, WheelError
from tfcore.run import Completed, run

pytestmark = pytest.mark.early

DATA = "tensorflow/_tensorwright.json"


@functools.cache
def known(family: str) -> dict[str, Any]:
    return dict(json.loads(build_guard_files(family)[DATA]))


# ---- the page ----


@pytest.mark.parametrize("name", COMPLETE)
def test_a_recorded_cpu_is_what_archspec_takes_it_for(name: str) -> None:
    cpu = cpu_of(name)
    assert find_target(text_of(name), known(cpu.architecture)) == match_cpu(cpu).best.name


@on_x86_64
def test_this_machine_is_what_archspec_takes_it_for() -> None:
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert find_target(cpuinfo, known("x86_64")) == archspec.cpu.host().name


@given(st.data())
def test_any_cpu_is_what_archspec_takes_it_for(data: st.DataObject) -> None:
    """A real CPU with a few of its flags hidden, perhaps of another maker."""
    name = data.draw(st.sampled_from([name for name in COMPLETE if "vendor_id" in text_of(name)]))
    flags = parse_cpuinfo(text_of(name)).features
    hidden = data.draw(st.frozensets(st.sampled_from(sorted(flags - {"sse2"})), max_size=4))
    vendor = data.draw(st.sampled_from(["GenuineIntel", "AuthenticAMD", "CentaurHauls"]))
    text = "processor : 0\nvendor_id : {}\ncpu family : 6\nmodel : 1\nflags : {}\nbogomips : 1\n"
    text = text.format(vendor, " ".join(sorted(flags - hidden)))
    cpu = parse_cpuinfo(text)
    assert dataclasses.replace(cpu, vendor=vendor) == cpu
    assert find_target(text, known("x86_64")) == match_cpu(cpu).best.name


def test_every_target_has_its_data() -> None:
    for family in ARCHITECTURES:
        names = {known_target["name"] for known_target in known(family)["targets"]}
        assert family in names
        assert names <= set(TARGETS)
    assert {"haswell", "zen4", "x86_64_v3"} <= {
        known_target["name"] for known_target in known("x86_64")["targets"]
    }


@pytest.mark.parametrize("text", ["", "vendor_id : GenuineIntel\n", "flags : sse2\n", "\0"])
def test_a_text_without_a_cpu_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        find_target(text, known("x86_64"))


# ---- TensorFlow's __init__.py ----


def test_the_defaults_come_first_the_check_last_and_nothing_else_changes() -> None:
    text = amend_init(STAND_IN)
    assert text == guard.DEFAULTS + STAND_IN + guard.CHECK
    assert amend_init(STAND_IN.rstrip(b"\n")) == text
    before, _, after = amend_init(REAL).partition(guard.DEFAULTS)
    assert before + after == REAL + guard.CHECK
    assert before.endswith(b'module of TensorFlow.\n"""\n\n')


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (b"", "import os as _os"),
        (STAND_IN.replace(b"import os as _os", b"import os"), "import os as _os"),
        (STAND_IN.replace(b"_kernel_dir)", b"_dir)"), "load_library"),
        (STAND_IN + b"__all__.extend([", "not valid Python"),
        (STAND_IN + b"\0", "not valid Python"),
        (STAND_IN + b"'\xff'", "not valid Python"),
    ],
)
def test_an_init_that_is_not_tensorflows_is_refused(init: bytes, message: str) -> None:
    with pytest.raises(WheelError, match=message):
        amend_init(init)


# ---- before everything else, in a full build ----

REAL = b'''\
# Copyright 2015 The TensorFlow Authors. All Rights Reserved.
"""
Top-level module of TensorFlow.
"""

import distutils as _distutils
import os as _os

from tensorflow.python.tools import module_util as _module_util
if True:
  _ll.load_library(_kernel_dir)
'''


def test_the_cpu_is_asked_before_the_first_import() -> None:
    text = guard.guard_init(REAL)
    before, _, after = text.partition(FIRST)
    assert before + after == REAL
    assert before.endswith(b'module of TensorFlow.\n"""\n\n')
    assert after.startswith(b"import distutils")


@pytest.mark.parametrize(
    "init",
    [
        b"",
        b"import os\n",
        b'"""Doc."""',
        b'"""Doc."""\nfrom __future__ import annotations\n\nimport os\n',
        b"# no end of line",
        b"@property\ndef x(): ...\n",
        b"import os\r\n",
        b"if True:\n  import os\n",
    ],
)
def test_wherever_the_first_statement_is_it_comes_after(init: bytes) -> None:
    text = guard.guard_init(init)
    assert text.count(FIRST) == 1
    statements = [
        statement for statement in ast.parse(text).body if not isinstance(statement, ast.Expr)
    ]
    futures = [
        statement
        for statement in statements
        if ast.unparse(statement).startswith("from __future__")
    ]
    assert ast.unparse(statements[len(futures)]) == "from tensorflow import _tensorwright_cpu"


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (b"import (", "not valid Python"),
        (b"\0", "not valid Python"),
        (b'"""Doc."""; import os\n', "no line"),
        (b"\xef\xbb\xbfimport os\n", "not valid Python"),
    ],
)
def test_an_init_without_a_place_for_it_is_refused(init: bytes, message: str) -> None:
    with pytest.raises(WheelError, match=message):
        guard.guard_init(init)


def needs_of(spec: str, *required: str) -> dict[str, Any]:
    return dict(json.loads(build_full_wheel_files(parse_target(spec), required)[NEEDS])["needs"])


def test_the_places_of_a_feature_are_those_of_cpuid() -> None:
    needs = needs_of("skylake_avx512", "avx512bw", "fma", "popcnt")
    assert needs["popcnt"] == {"cpuid": [1, 0, 2, 23]}
    assert needs["fma"] == {"cpuid": [1, 0, 2, 12], "usable": [1, 0, 2, 28]}
    assert needs["avx512bw"] == {"cpuid": [7, 0, 1, 30], "usable": [7, 0, 1, 16]}
    assert needs_of("neoverse_v1", "sve") == {"sve": {}}


def test_a_feature_that_nobody_knows_cannot_be_asked_for() -> None:
    with pytest.raises(TargetError, match="fmx"):
        needs_of("haswell", "fmx")


def test_cpuinfo_answers_where_cpuid_cannot() -> None:
    needs = needs_of("neoverse_v1", "sve", "bf16")
    assert list_missing(needs, {"sve", "bf16"}, "") == []
    assert list_missing(needs, {"sve"}, "") == ["bf16"]
    assert list_missing(needs, {"sve", "bf16"}, "sve") == ["sve"]


@on_x86_64
def test_cpuid_and_cpuinfo_agree_on_this_machine() -> None:
    shown = read_cpu().features & {*filter_codegen(load_features("x86_64"), "x86_64")}
    needs = needs_of("haswell", *filter_codegen(load_features("x86_64"), "x86_64"))
    assert {*needs} - {*list_missing(needs, set(), "")} >= shown - {"3dnowprefetch", "sse3"}


# ---- in a package ----


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A folder with a `tensorflow` that is guarded as a wheel's is."""

    folder: Path

    @property
    def dispatcher(self) -> Path:
        return self.folder / "tensorflow" / "core" / "kernels" / LIBRARY

    def import_it(self, *words: str, **env: str) -> Completed:
        code = "import sys, tensorflow; print(*sorted(sys.modules))"
        # -S keeps out what a virtual environment's own start-up files import.
        argv = [sys.executable, "-S", "-c", code, *words]
        return run(argv, env={"PYTHONPATH": str(self.folder), **env}, cwd=self.folder, check=False)


SETTING = Default(
    lever=DefaultLever(name="any", set={"SETTING": "ours"}, leave=("OTHER",)), on=True
)


def sets(name: str, *defaults: Default, needs: tuple[str, ...] = ("sse2",)) -> dict[str, bytes]:
    """The data of a wheel for one target with these defaults."""
    return build_defaults_file("x86_64", [(name, needs, defaults)])


def guarded(folder: Path, *targets: DispatchTarget) -> Package:
    install(folder, *targets)
    members = {INIT: amend_init(STAND_IN), **build_guard_files("x86_64"), **sets("zen4", SETTING)}
    for name, content in members.items():
        (folder / name).write_bytes(content)
    return Package(folder=folder)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return guarded(tmp_path_factory.mktemp("tuned"), target("zen4", *PRESENT))


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return guarded(tmp_path_factory.mktemp("fallen"), target("zen4", *PRESENT, *ABSENT[:2]))


REQUIRED: Mapping[str, str] = {"TENSORWRIGHT_REQUIRE": "1"}
FELL_BACK = (
    "ImportError: TENSORWRIGHT_REQUIRE is set, but TensorFlow runs with its stock kernels:"
    " zen4 needs reserved_bit, no_leaf, which this CPU lacks."
)


@on_x86_64
@pytest.mark.toolchain
def test_tuned_kernels_satisfy_the_requirement(tuned: Package) -> None:
    assert tuned.import_it(**REQUIRED).returncode == 0


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("env", [{}, {"TENSORWRIGHT_REQUIRE": ""}, {"TENSORWRIGHT_REQUIRE": "0"}])
def test_without_the_requirement_nothing_is_imported(
    fallen: Package, env: Mapping[str, str]
) -> None:
    """`unloaded` leaves out the stand-in's own loading, which needs ctypes."""
    done = fallen.import_it("unloaded", TENSORWRIGHT_DEFAULTS="0", **env)
    assert done.returncode == 0
    modules = set(done.output.split())
    assert "tensorflow" in modules
    assert not {"ctypes", "json", "tensorflow._tensorwright"} & modules
    assert "tensorflow._tensorwright_defaults" not in modules
    assert fallen.import_it(**env).returncode == 0


@on_x86_64
@pytest.mark.toolchain
def test_a_fallback_names_the_features_and_the_page(fallen: Package) -> None:
    done = fallen.import_it(**REQUIRED)
    host = archspec.cpu.host().name
    page = f"Wheels for this CPU, {host}: the page simple/{host}/ of your index"
    assert done.output.splitlines()[-1] == f"{FELL_BACK} {page}"
    assert done.returncode == 1


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("index", "shown"),
    [
        ("https://wheels.example", "https://wheels.example/simple"),
        ("https://wheels.example/tf/", "https://wheels.example/tf/simple"),
        ("https://me:s3cr%40t@wheels.example:8443/", "https://wheels.example:8443/simple"),
        ("file:///srv/index", "file:///srv/index/simple"),
    ],
)
def test_the_page_is_on_the_index_that_is_named_without_its_login(
    fallen: Package, index: str, shown: str
) -> None:
    done = fallen.import_it(**REQUIRED, TENSORWRIGHT_INDEX=index)
    assert done.output.splitlines()[-1].endswith(f": {shown}/{archspec.cpu.host().name}/")
    assert "s3cr" not in done.output


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"TENSORWRIGHT_TARGET": "off"}, "TENSORWRIGHT_TARGET=off"),
        ({"TENSORWRIGHT_TARGET": "zen9"}, "no kernels for TENSORWRIGHT_TARGET=zen9"),
        ({"TENSORWRIGHT_MASK": "sse2"}, "zen4 needs sse2, which this CPU lacks"),
        ({"TENSORWRIGHT_MASK": "SSE2"}, 'TENSORWRIGHT_MASK names "SSE2"'),
    ],
)
def test_the_reason_is_the_dispatchers(tuned: Package, env: dict[str, str], reason: str) -> None:
    done = tuned.import_it(**REQUIRED, **env)
    assert done.returncode == 1
    assert reason in done.output.splitlines()[-1]


@on_x86_64
@pytest.mark.toolchain
def test_a_dispatcher_that_was_not_loaded_is_no_tuned_kernel(tuned: Package) -> None:
    done = tuned.import_it("unloaded", TENSORWRIGHT_DEFAULTS="0", **REQUIRED)
    assert done.returncode == 1
    assert f"not load {tuned.dispatcher}" in done.output
    assert "tensorwright: " not in done.output, "asking must not load it"


@on_x86_64
@pytest.mark.toolchain
def test_a_dispatcher_that_is_gone_is_no_tuned_kernel(tmp_path: Path) -> None:
    package = guarded(tmp_path, target("zen4"))
    package.dispatcher.unlink()
    done = package.import_it(**REQUIRED)
    assert done.returncode == 1
    assert f"{package.dispatcher} is missing" in done.output


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"{", b"\xff"])
def test_damaged_data_costs_the_page_and_not_the_message(tmp_path: Path, damage: bytes) -> None:
    package = guarded(tmp_path, target("zen4", ABSENT[0]))
    (tmp_path / DATA).write_bytes(damage)
    last = package.import_it(**REQUIRED).output.splitlines()[-1]
    assert "zen4 needs reserved_bit" in last


def test_without_data_the_page_is_archspecs_to_name() -> None:
    assert "`archspec cpu`" in describe_wheel_page("https://wheels.example")


# ---- run-time defaults ----

SET = "tensorwright: SETTING=ours for zen4; TENSORWRIGHT_DEFAULTS=0 turns this off"
LEFT = "tensorwright: run-time defaults are not set ("


def started(package: Package, **env: str) -> list[str]:
    """What is said at the import, and last what SETTING is when libraries are loaded."""
    code = "import os, tensorflow; print(os.environ.get('SETTING', 'nothing'))"
    argv = [sys.executable, "-S", "-c", code, "unloaded"]
    quiet = {"PYTHONPATH": str(package.folder), **env}
    done = run(argv, env=quiet, cwd=package.folder)
    return done.output.splitlines()


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("env", "lines"),
    [
        ({}, [SET, "ours"]),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, [SET, "ours"]),
        ({"TF_CPP_MIN_LOG_LEVEL": "1"}, ["ours"]),
        ({"TENSORWRIGHT_DEFAULTS": "0"}, ["nothing"]),
        ({"TENSORWRIGHT_DEFAULTS": "1"}, [SET, "ours"]),
        ({"SETTING": "theirs"}, ["theirs"]),
        ({"SETTING": ""}, [""]),
        ({"OTHER": "theirs"}, ["nothing"]),
        ({"TENSORWRIGHT_TARGET": "off"}, ["nothing"]),
        ({"TENSORWRIGHT_TARGET": "zen_4"}, ["nothing"]),
        ({"TENSORWRIGHT_MASK": "sse2"}, ["nothing"]),
    ],
)
def test_a_default_is_set_where_nothing_else_is(
    tuned: Package, env: dict[str, str], lines: list[str]
) -> None:
    assert started(tuned, **env) == lines


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    "damage",
    [
        *(None, b"", b"{}", b"[]", b"{", b"\xff", b"[" * 100_000),
        b'{"targets": [{}], "features": {}}',
        sets("zen4", SETTING)[DEFAULTS_DATA].replace(b'"ours"', b"1"),
        sets("zen4", SETTING)[DEFAULTS_DATA].replace(b'"ours"', b'"\\u0000"'),
        sets("zen4", SETTING)[DEFAULTS_DATA].replace(b'"on":true', b'"off":true'),
    ],
)
def test_damaged_defaults_are_left_out_and_told(tmp_path: Path, damage: bytes | None) -> None:
    package = guarded(tmp_path, target("zen4"))
    (tmp_path / DEFAULTS_DATA).unlink()
    if damage is not None:
        (tmp_path / DEFAULTS_DATA).write_bytes(damage)
    warning, setting = started(package)
    assert warning.startswith(LEFT)
    assert setting == "nothing"
    assert started(package, TF_CPP_MIN_LOG_LEVEL="2") == ["nothing"]


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(("model", "setting"), [("Haswell", "ours"), ("SandyBridge", "nothing")])
def test_the_cpu_that_is_emulated_decides(tmp_path: Path, model: str, setting: str) -> None:
    """qemu-x86_64 shows the host's /proc/cpuinfo."""
    package = guarded(tmp_path, target("zen4"))
    data = sets("haswell", SETTING, needs=("avx2", "fma", "lahf_lm", "abm"))
    (tmp_path / DEFAULTS_DATA).write_bytes(data[DEFAULTS_DATA])
    code = "import os, tensorflow; print(os.environ.get('SETTING', 'nothing'))"
    emulator = ["qemu-x86_64", "-cpu", model]
    done = run(
        [*emulator, sys.executable, "-S", "-c", code, "unloaded"],
        env={"PYTHONPATH": str(package.folder)},
        cwd=package.folder,
        timeout_s=300,
    )
    assert done.output.splitlines()[-1] == setting
