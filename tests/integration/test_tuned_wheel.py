"""A wheel that was really built for this CPU: what it is, and what it does in TensorFlow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried, own_arm
from tests.builders.invoke_calls import Tasks
from tests.builders.own_cpu import own_cpu
from tests.builders.plans import fleet_for

from tfbench.commands import SelfcheckOptions
from tfbench.result_check import check_results
from tfbuild import handlers
from tfbuild.binaries import elf
from tfbuild.commands import Request
from tfbuild.kernelbuild import admission, assemble, finished_wheels, pool, structures
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.build_setup import read_requirements
from tfbuild.kernelbuild.random_trials import FILE, load_search
from tfbuild.packing import conformance, tuned, wheel
from tfbuild.planning import dispatcher, render
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.selection import Selection
from tfbuild.tools import environment, shared_files
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.kernels import FOLDER, KernelUnit
from tfcore.comparisons.kernels import TypedOp
from tfcore.errors import AgreementError, KernelError, WheelError
from tfcore.records import save
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels]

PROGRAM = Path(__file__).with_name("program.py")
LIST_KERNELS = """
import json, sys
import tensorflow as tf
from tensorflow.python.framework import kernels
found = kernels.get_registered_kernels_for_op(sys.argv[1]).kernel
cpu = [k for k in found if k.device_type == "CPU"]
print(json.dumps([[k.priority, k.constraint[0].allowed_values.list.type[0]] for k in cpu]))
"""
LENT_POOL = """
import numpy as np
import tensorflow as tf
config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=4, inter_op_parallelism_threads=2)
config.graph_options.rewrite_options.disable_meta_optimizer = True
with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder(tf.float32, [None])
    y = tf.raw_ops.Tanh(x=x)
    session = tf.compat.v1.Session(graph=graph, config=config)
options = tf.compat.v1.RunOptions()
options.experimental.use_run_handler_pool = True
for _ in range(300):
    session.run(y.op, {x: np.ones(200000, np.float32)}, options=options)
print("done")
"""


def python(arm: Environment, *words: str | Path, **env: str) -> str:
    """What a program of the arm's Python prints on its last line."""
    done = run([arm.python, "-P", *words], env=admission.build_probe_env() | env, timeout_s=600)
    return done.output.strip().splitlines()[-1]


def test_the_version_names_the_target_everywhere(native: Tried) -> None:
    path, local = native.built.wheel, native.plan.target.local
    version = f"2.14.1+{local}"
    assert path.name.startswith(f"tensorflow_cpu-{version}-cp311-")
    folder = f"tensorflow_cpu-{version}.dist-info"
    assert f"Version: {version}\n".encode() in wheel.read_member(path, f"{folder}/METADATA")
    assert any(line.name == f"{folder}/tuned.json" for line in wheel.verify_record(path))


def test_the_wheel_says_what_it_is(native: Tried) -> None:
    facts = tuned.read_tuned(native.built.wheel)
    assert facts is not None
    assert facts.key == native.plan.key
    (library,) = facts.libraries
    assert library.target == native.plan.target.spec
    assert library.kernels == ("cwise_op_sigmoid", "cwise_op_tanh")
    assert library.required_features == native.plan.required
    assert not library.stay_stock
    packed = wheel.read_member(native.built.wheel, library.file)
    assert hashlib.sha256(packed).hexdigest() == library.sha256
    assert len(packed) == library.size


def test_the_library_loads_wherever_the_stock_wheel_does(native: Tried, tmp_path: Path) -> None:
    """manylinux_2_17: glibc 2.17 and the libstdc++ of GCC 4.8 (PEP 599)."""
    inside = "tensorflow/core/kernels"
    wheel.extract(native.built.wheel, (f"{inside}/",), tmp_path / "out")
    libraries = list((tmp_path / "out" / inside).rglob("lib*tensorwright*.so"))
    assert len(libraries) == 2
    for library in libraries:
        floors = {
            name: [int(n) for n in text.split(".")]
            for name, text in elf.read_version_floors(library).items()
        }
        assert floors.get("GLIBC", [0]) <= [2, 17]
        assert floors.get("GLIBCXX", [0]) <= [3, 4, 19]


def test_unpacking_it_finds_every_hash_right(native: Tried, tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "wheel", "unpack", native.built.wheel, "--dest", tmp_path])
    assert "OK" in done.output


def test_tuned_kernels_stand_before_the_stock_ones(native: Tried) -> None:
    rows = json.loads(python(native.arm, "-c", LIST_KERNELS, "Tanh"))
    tuned_types = {dtype for priority, dtype in rows if priority == 1}
    stock_types = {dtype for priority, dtype in rows if priority == 0}
    assert tuned_types == stock_types
    assert len(tuned_types) == 6
    assert rows[0][0] == 1


def test_it_is_really_ours_that_runs(native: Tried, tmp_path: Path) -> None:
    record = assemble.run_smoke_test(native.arm, tmp_path)
    assert record["loaded"] == native.plan.target.local
    assert record["computes"]
    ops = {"Sigmoid", "SigmoidGrad", "Tanh", "TanhGrad"}
    for mode in ("eager", "function"):
        assert set(record[mode]) == ops
        assert all(count == 1 for count in record[mode].values()), record


def test_every_kernel_agreed_in_every_dtype(native: Tried) -> None:
    (part,) = native.built.parts
    for verdict in part.verdicts:
        assert verdict.admitted
        assert len(verdict.registrations) == 12
        assert verdict.cases >= len(verdict.registrations) * 10
        assert all(0 <= ulps <= 32 for ulps in verdict.ulps.values())


def test_kernels_saw_the_structures_that_the_stock_wheel_has(native: Tried, paths: Paths) -> None:
    notes = paths.work / native.plan.key[:16] / structures.NOTES
    sizes = json.loads(notes.read_text("utf-8"))
    assert len(sizes["wheel"]) > 40
    assert sizes["wheel"]["sizeof(Tensor)"] > 0
    assert "offsetof(NodeProperties, node_def)" in sizes["wheel"]
    assert sizes["kernels"] == sizes["wheel"]


def test_users_programs_compute_the_same(
    native: Tried, stock_arm: Environment, tmp_path: Path
) -> None:
    for name in ("stock", "tuned"):
        (tmp_path / name).mkdir()
    stock = json.loads(python(stock_arm, PROGRAM, tmp_path / "stock"))
    ours = json.loads(python(native.arm, PROGRAM, tmp_path / "tuned"))
    assert set(stock) == set(ours)
    for name, values in stock.items():
        assert ours[name] == pytest.approx(values, rel=2e-5, abs=2e-6), name
    assert ours["trained"] == ours["trained again"]


def test_a_cpu_without_a_feature_gets_the_stock_kernels(native: Tried, tmp_path: Path) -> None:
    script = "import tensorflow as tf; print(float(tf.tanh(tf.constant([0.5]))[0]))"
    done = run(
        [native.arm.python, "-P", "-c", script],
        env=admission.build_probe_env()
        | {"TENSORWRIGHT_MASK": "avx2", "TF_CPP_MIN_LOG_LEVEL": "1"},
        cwd=tmp_path,
    )
    output = [line for line in done.output.splitlines() if line.startswith("tensorwright")]
    assert len(output) == 1
    assert "avx2" in output[0]
    assert float(done.output.splitlines()[-1]) == pytest.approx(0.46211717)


def test_a_lost_kernel_library_is_no_catastrophe(native: Tried, tmp_path: Path) -> None:
    """Missing, then truncated: the import goes on with the stock kernels, and says so."""
    own_tried = own_arm(native, tmp_path)
    library = next(own_tried.arm.folder.rglob(native.plan.library))
    content = library.read_bytes()
    library.unlink()
    record = assemble.run_smoke_test(own_tried.arm, tmp_path)
    assert record["loaded"] is None
    assert record["computes"]
    library.write_bytes(content[:5000])
    record = assemble.run_smoke_test(own_tried.arm, tmp_path)
    assert record["loaded"] is None
    assert record["computes"]


@pytest.mark.slow
def test_doctor_says_where_the_tuned_kernels_run_and_why_not_elsewhere(
    native: Tried, tmp_path: Path
) -> None:
    """As pip install --target leaves them, and without the dispatcher."""
    invoke, local = Tasks(tmp_path), native.plan.target.local
    done = invoke("doctor", "--wheel", str(native.arm.folder))
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert f"runs its kernels for {local} (of {native.plan.target.spec})" in done.stdout
    (site,) = own_arm(native, tmp_path).arm.folder.glob("lib/python*/site-packages")
    target = site.rename(tmp_path / "target")
    done = invoke("doctor", "--wheel", str(target))
    assert done.returncode == WheelError.exit_code
    assert "runs the stock kernels: TensorFlow did not load" in done.stdout
    assert f"this CPU can run those for {native.plan.target.spec}" in done.stderr
    assert "virtual environment, not with pip install --target" in done.stderr
    (target / FOLDER / dispatcher.LIBRARY).unlink()
    done = invoke("doctor", "--wheel", str(target), "--json")
    assert done.returncode == WheelError.exit_code
    assert json.loads(done.stdout)["reason"].endswith(f"{dispatcher.LIBRARY} is missing")
    assert "--force-reinstall" in done.stderr


@pytest.mark.slow
def test_building_again_gives_the_same_bytes(native: Tried, paths: Paths, tmp_path: Path) -> None:
    """With nothing left but the caches: the workspace is rendered, linked and packed anew."""
    shutil.rmtree(paths.work / native.plan.key[:16])
    fresh = dataclasses.replace(paths, pool=tmp_path)
    _, compiler = fleet_for(Request(kernels="mini"))
    jobs = handlers.choose_jobs(native.plan, "")
    again = builder.build_wheel(native.fleet, compiler=compiler, jobs=jobs, paths=fresh)
    assert not again.reused
    assert again.wheel.read_bytes() == native.built.wheel.read_bytes()


@pytest.mark.slow
def test_what_was_linked_last_is_not_linked_again_and_decides_nothing(
    native: Tried, paths: Paths, tmp_path: Path
) -> None:
    _, compiler = fleet_for(Request(kernels="mini"))
    jobs = handlers.choose_jobs(native.plan, "")

    def build(pool: Path) -> bytes:
        fresh = dataclasses.replace(paths, pool=pool)
        return builder.build_wheel(
            native.fleet, compiler=compiler, jobs=jobs, paths=fresh
        ).wheel.read_bytes()

    work = paths.work / native.plan.key[:16]
    log = work / "link.log"
    expected = native.built.wheel.read_bytes()
    before = log.stat().st_mtime_ns
    assert build(tmp_path / "first") == expected
    assert log.stat().st_mtime_ns == before
    # As if admission had let only one unit in.
    render.write(
        render.render_admitted(native.plan.kernels[:1], paths.templates), work / "workspace"
    )
    assert build(tmp_path / "second") == expected
    assert log.stat().st_mtime_ns > before


def test_an_environment_that_shares_files_has_those_of_the_wheel(
    native: Tried, stock_arm: Environment
) -> None:
    """It was made from the stock wheel's."""
    folder, theirs = (
        shared_files.locate_packages(arm_environment.folder, native.plan.python)
        for arm_environment in (native.arm, stock_arm)
    )
    for line in wheel.read_record(native.built.wheel):
        with (folder / line.name).open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").digest()
        assert wheel.encode_digest("sha256", digest) == line.digest, line.name
    own_text, shared = "tensorflow/__init__.py", "tensorflow/libtensorflow_cc.so.2"
    assert not (folder / own_text).samefile(theirs / own_text)
    assert (folder / shared).samefile(theirs / shared)


def test_a_finished_wheel_is_found_again(native: Tried, paths: Paths) -> None:
    built_wheel = pool.find_wheel(native.fleet, paths)
    assert built_wheel is not None
    assert built_wheel.wheel == native.built.wheel


def test_a_damaged_wheel_in_the_pool_is_not_taken_for_finished(
    native: Tried, paths: Paths, tmp_path: Path
) -> None:
    for path in (native.built.wheel, native.built.manifest):
        shutil.copy(path, tmp_path)
    damaged = tmp_path / native.built.wheel.name
    with damaged.open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\0\0\0")
    assert pool.find_wheel(native.fleet, dataclasses.replace(paths, pool=tmp_path)) is None


@pytest.mark.slow
@pytest.mark.parametrize("names", ["cwise_op_tanh,spacetodepth_op", ""])
def test_a_selection_registers_what_it_names_and_nothing_else(
    native: Tried, paths: Paths, tmp_path: Path, names: str
) -> None:
    """SpaceToDepth is limited to a data format, too: an attribute without types. With sources (the
    `names` of them) nothing else is compiled."""
    sources = tuple(f"{FOLDER}/{name}.cc" for name in names.split(",") if name)
    kept_ops = (
        TypedOp(op="SpaceToDepth", types="T=1,data_format="),
        TypedOp(op="Tanh", types="T=1"),
    )
    selection = Selection(
        made="2026-11-21",
        cpu="this one",
        release=native.plan.release,
        target=native.plan.target.spec,
        plan_key=native.plan.key,
        rate=0.05,
        kernels=("cwise_op_tanh", "spacetodepth_op"),
        sources=sources,
        kept=kept_ops,
        rows=(),
    )
    save(tmp_path / "selection.json", selection)
    decided, compiler = fleet_for(Request(selection=str(tmp_path / "selection.json")))
    fresh = dataclasses.replace(paths, pool=tmp_path)
    jobs = handlers.choose_jobs(decided.first, "")
    built = builder.build_wheel(decided, compiler=compiler, jobs=jobs, paths=fresh)
    facts = tuned.read_tuned(built.wheel)
    assert facts is not None
    assert facts.libraries[0].registrations == kept_ops
    assert set(facts.libraries[0].sources) == set(sources)
    (part,) = built.parts
    typed_ops = {
        registration for verdict in part.verdicts for registration in verdict.registrations
    }
    assert (typed_ops == set(kept_ops)) == bool(sources), "what is compiled whole is admitted whole"
    needs = read_requirements(decided.first)
    arm = environment.create(
        built.wheel, python=decided.first.python, requirements=needs, paths=paths
    )
    for op in ("SpaceToDepth", "Tanh"):
        rows = json.loads(python(arm, "-c", LIST_KERNELS, op))
        assert [dtype for priority, dtype in rows if priority == 1] == [1]


def test_what_is_not_as_promised_is_an_error(native: Tried) -> None:
    assemble._require_promises(native.built.wheel, {})
    with pytest.raises(AgreementError, match="one_stack: 3 is not 2"):
        assemble._require_promises(native.built.wheel, {"one_stack": "3 is not 2"})


def test_a_pool_that_is_lent_to_one_run_is_left_empty(native: Tried) -> None:
    """TensorFlow aborts a process in which work is left in the pool of a run that has ended."""
    assert python(native.arm, "-c", LENT_POOL) == "done"


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_is_named_and_can_be_left_out(
    native: Tried, paths: Paths, tmp_path: Path
) -> None:
    """debug_ops needs gRPC's headers, which no wheel ships."""
    decided, compiler = fleet_for(Request(kernels="mini,debug_ops"))
    jobs = handlers.choose_jobs(decided.first, "")
    pool = dataclasses.replace(paths, pool=tmp_path)
    with pytest.raises(KernelError, match=r"debug_ops (.|\n)*grpc") as caught:
        builder.build_wheel(decided, compiler=compiler, jobs=jobs, paths=pool)
    assert "--keep-going" in caught.value.hint
    assert not list(tmp_path.iterdir())
    built = builder.build_wheel(decided, compiler=compiler, jobs=jobs, paths=pool, keep_going=True)
    (part,) = built.parts
    reasons = {verdict.unit: verdict.reason for verdict in part.verdicts}
    assert "does not compile" in reasons.pop("debug_ops")
    assert reasons == {"cwise_op_sigmoid": "", "cwise_op_tanh": ""}


def test_a_kernel_that_the_tree_lacks_names_the_close_ones(paths: Paths, native: Tried) -> None:
    """As a plan of a release may have it whose sources nobody has listed."""
    fleet, compiler = fleet_for(Request(kernels="cwise_op_tanh"))
    missing = KernelUnit(name="cwise_op_tahn", sources=(f"{FOLDER}/cwise_op_tahn.cc",))
    decided = Fleet(plans=(dataclasses.replace(fleet.first, kernels=(missing,)),))
    jobs = handlers.choose_jobs(decided.first, "")
    with pytest.raises(KernelError) as caught:
        builder.build_wheel(decided, compiler=compiler, jobs=jobs, paths=paths)
    assert "cwise_op_tanh" in caught.value.hint


def test_pip_installs_it_and_finds_nothing_broken(native: Tried) -> None:
    words = [sys.executable, "-m", "pip", "--python", str(native.arm.python), "check"]
    assert subprocess.run(words, check=False, capture_output=True).returncode == 0


def test_random_programs_run_with_a_wheel(native: Tried, tmp_path: Path) -> None:
    """Its library has no fused ops, so none of them runs any."""
    options = SelfcheckOptions(
        results=True, candidate=str(native.built.wheel), budget="20s", out=str(tmp_path)
    )
    result, text = check_results(options, as_json=False)
    assert load_search(tmp_path / FILE) == result
    assert result.wheel_sha256 == hash_file(native.built.wheel)
    assert result.wrong == 0
    assert all(row.programs > 0 == row.fused for row in result.families.values())
    assert str(tmp_path / FILE) in text


@pytest.mark.slow
def test_fused_ops_are_tested_against_stock_in_a_wheel_with_tuned_kernels(
    paths: Paths, tmp_path: Path
) -> None:
    """Square roots of tuned kernels differ from stock's in the last bit, and chains may, too."""
    fleet, compiler = fleet_for(Request(kernels="cwise_op_rsqrt,fused/chains,fused/updates"))
    own = dataclasses.replace(paths, pool=tmp_path)
    jobs = handlers.choose_jobs(fleet.first, "")
    built = builder.build_wheel(fleet, compiler=compiler, jobs=jobs, paths=own)
    cpu = own_cpu().cpu
    finished = finished_wheels.load_finished_wheel(built.wheel, cpu)
    record = finished_wheels.retest_kernels(finished, cpu, paths)
    assert list(conformance.describe_failures(record.targets)) == []
    (trial,) = record.targets.values()
    assert {"cwise_op_rsqrt", "fused/chains", "fused/updates"} == set(trial.units)
