"""Real workers in the stock TensorFlow's environment: a whole comparison, and what can go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.altered_wheels import altered
from tests.builders.processes import alive, children, gone
from tests.builders.user_workloads import cpus, plain_arm

from tfbench.arms.arm import Arm, build_environment
from tfbench.engine.journal import read_entries
from tfbench.engine.workers import Session, start_session
from tfbench.inside import training
from tfbench.inside.phases import AUGMENT, TRAIN, VALIDATE
from tfbench.inside.worker import SLOWDOWN
from tfbench.inside.workloads import WORKLOADS
from tfbench.measuring.agreement import compare_losses
from tfbench.measuring.comparing import (
    KIND,
    ComparisonSetting,
    check_comparison,
    compare,
    make_setting,
)
from tfbench.measuring.measurement import CHECKED_STEPS
from tfbench.measuring.samples import KINDS, End, Entry, Fault, Sample, Start
from tfcore.comparisons.comparison import Agreement, ComparedCell, Comparison, load
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import read_host
from tfcore.errors import AgreementError, WorkerError

pytestmark = pytest.mark.toolchain

ROOTS = [str(Path(__file__).parents[2] / name) for name in ("build", "benchmarks")]
WAIT_S = 180.0
EFFORT = Effort(looks=(3,), blocks=3)
SLOWER = 1.10
LIMIT_S = 8.0
"""For an answer; they come within two seconds even when all arms start at once."""

# Each is appended to TensorFlow's own first file.
WRONG = """
from tensorflow.python.ops import gen_math_ops as _ops
_real = _ops.mat_mul
_ops.mat_mul = lambda *given, **named: _real(*given, **named) * {factor}
"""
OTHER_NUMBERS = """
import numpy as _numpy
_real = _numpy.random.default_rng
_numpy.random.default_rng = lambda seed: _real([1, *_numpy.atleast_1d(seed)])
"""
STARVED = """
import resource as _resource
_pages = int(open("/proc/self/statm").read().split()[0])
_most = _pages * _resource.getpagesize() + 30_000_000
_resource.setrlimit(_resource.RLIMIT_AS, (_most, _most))
"""
BACKWARDS = """
import time as _time
_real = _time.perf_counter
_time.perf_counter = lambda: -_real()
"""
NOISY = """
import os as _os, sys as _sys
_sys.stdout.write("noise from Python")
_sys.stdout.flush()
_os.write(1, b"noise from a plugin")
"""


@contextlib.contextmanager
def opened(first: Arm, folder: Path, vcpus: int = 1) -> Iterator[Session]:
    env = build_environment(first, vcpus=vcpus, home=folder, padding=7, inherited=os.environ)
    with start_session(first, env, folder / f"{first.name}.log") as started:
        yield started


def asked(*arms: Arm) -> ComparisonSetting:
    vcpus = [read_host().vcpus.usable]
    return make_setting(arms, ["mnist_mlp"], vcpus, effort=EFFORT, threshold=0.0, seed=5)


def wait_until(holds: Callable[[], bool], event: str, limit_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{event} did not come within {limit_s:g} s")
        time.sleep(0.05)


# --- a run to which everything happens ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """`killed` is the journal as the killed harness left it, `whole` as the second one did."""

    out: Path
    killed: bytes
    whole: bytes
    workers: tuple[int, ...]
    left_running: tuple[int, ...]
    result: Comparison

    @property
    def cell(self) -> ComparedCell:
        (cell,) = self.result.cells
        return cell

    @property
    def entries(self) -> tuple[Entry, ...]:
        return read_entries(self.out / KIND.journal, KINDS)

    @property
    def samples(self) -> list[Sample]:
        return [entry for entry in self.entries if isinstance(entry, Sample)]

    def starts(self, name: str) -> list[Start]:
        return [entry for entry in self.entries if isinstance(entry, Start) and entry.arm == name]

    def agreement(self, name: str) -> Agreement:
        (agreement,) = (
            arm_agreement for arm_agreement in self.cell.agreements if arm_agreement.arm == name
        )
        return agreement


@pytest.fixture(scope="module")
def run(stock_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Stock against a slowed one and four that go wrong, killed and gone on with.

    One worker is killed in the first launch and one stopped in the second, each after two whole
    blocks; the harness is killed in the third.
    """
    folder = tmp_path_factory.mktemp("run")
    out = folder / "out"
    setting = asked(
        plain_arm("stock", stock_python),
        plain_arm("slowed", stock_python, **{SLOWDOWN: f"{SLOWER - 1:.2f}"}),
        plain_arm("killed", stock_python),
        plain_arm("hung", stock_python),
        plain_arm("wrong", altered(stock_python, folder / "wrong", WRONG.format(factor=1.01))),
        plain_arm(
            "nan", altered(stock_python, folder / "nan", WRONG.format(factor="float('nan')"))
        ),
    )
    with harness(setting, folder, out) as process:
        watch = Watch(journal=out / KIND.journal, process=process)
        os.kill(watch.worker("killed", launch=0, samples=2 * 10), signal.SIGKILL)
        os.kill(watch.worker("hung", launch=1, samples=2 * 8), signal.SIGSTOP)
        watch.worker("slowed", launch=2, samples=1)
        workers = children(process.pid)
        process.kill()
        process.wait()
    leftover = left_running(workers)
    killed = (out / KIND.journal).read_bytes()
    result = compare(setting, out)
    return Run(
        out=out,
        killed=killed,
        whole=(out / KIND.journal).read_bytes(),
        workers=tuple(workers),
        left_running=leftover,
        result=result,
    )


@contextlib.contextmanager
def harness(
    setting: ComparisonSetting, folder: Path, out: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A comparison in a process of its own, which waits less long for answers."""
    (folder / "setting").write_bytes(pickle.dumps(setting))
    script = f"""
        import pickle, sys
        sys.path += {ROOTS!r}
        from pathlib import Path
        from tfbench.engine import workers
        from tfbench.measuring import comparing
        workers.STEPS_LIMIT_S = {LIMIT_S}
        setting = pickle.loads(Path({str(folder / "setting")!r}).read_bytes())
        comparing.compare(setting, Path({str(out)!r}))
    """
    with subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(script)]) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """A run's journal, looked at while it is written."""

    journal: Path
    process: subprocess.Popen[bytes]

    def worker(self, name: str, *, launch: int, samples: int) -> int:
        """The process of an arm in a launch, once that has so many samples."""
        wait_until(lambda: len(self._all(Sample, launch)) >= samples, f"samples of launch {launch}")
        (start,) = (
            start_entry for start_entry in self._all(Start, launch) if start_entry.arm == name
        )
        return int(start.facts["pid"])

    def _all(self, kind: type[Any], launch: int) -> list[Any]:
        assert self.process.poll() is None, "the harness ended by itself"
        entries = read_entries(self.journal, KINDS) if self.journal.exists() else ()
        return [entry for entry in entries if isinstance(entry, kind) and entry.launch == launch]


def test_a_killed_harness_leaves_whole_lines_and_no_workers(run: Run) -> None:
    assert run.killed.endswith(b"}\n")
    assert len(run.workers) == 3
    assert not run.left_running


def test_going_on_keeps_every_line_and_measures_nothing_twice(run: Run) -> None:
    assert run.whole.startswith(run.killed)
    added = run.whole[len(run.killed) :]
    assert added, "the third launch was still to come"
    paths = [(s.launch, s.phase, s.block, s.position) for s in run.samples]
    assert len(set(paths)) == len(paths)
    ends = [entry for entry in run.entries if isinstance(entry, End)]
    faults = [entry for entry in run.entries if isinstance(entry, Fault)]
    assert [entry.launch for entry in faults] == [0, 1]
    assert [entry.launch for entry in ends] == [3], "the launch that was killed has no end"
    assert {s.launch for s in run.samples} == {0, 1, 2, 3}
    assert run.cell.launches == 3
    assert run.cell.stopped_by == "launches"
    assert len({s.steps for s in run.samples}) == 1, "calibrated once"


def test_arms_whose_workers_failed_are_marked(run: Run) -> None:
    killed, hung = run.cell.failures
    assert (killed.arm, hung.arm) == ("killed", "hung")
    assert "SIGKILL during sample" in killed.reason
    assert "memory" in killed.reason
    assert f"sample within {LIMIT_S:g} s" in hung.reason
    with pytest.raises(WorkerError, match=r"2 arms .*SIGKILL"):
        check_comparison(replace(run.result, cells=(replace(run.cell, agreements=()),)), gate=True)


def test_a_wheel_that_computes_something_else_is_not_timed(run: Run) -> None:
    """Its products are 1 % too large, or are no numbers."""
    wrong, nothing = run.agreement("wrong"), run.agreement("nan")
    assert not wrong.agrees
    assert wrong.losses is not None
    assert wrong.losses > wrong.tolerance
    assert not nothing.agrees
    assert nothing.losses is nothing.predictions is None
    assert {s.arm for s in run.samples}.isdisjoint({"wrong", "nan"})
    for name in ("wrong", "nan"):
        assert [start.launch for start in run.starts(name)] == [0], "it is not started again"
    with pytest.raises(AgreementError, match=r"mnist_mlp, .* \(stock\) .* \(wrong\)"):
        check_comparison(run.result, gate=False)


def test_only_the_repeat_starts_one_rounding_away_which_such_a_model_hardly_shows(run: Run) -> None:
    stock, again = run.starts("stock")[0], run.starts("stock again")[0]
    other_values = {entry.arm: entry.nudged for entry in run.entries if isinstance(entry, Start)}
    assert [name for name, nudged in other_values.items() if nudged] == ["stock again"]
    apart = compare_losses(stock.losses, again.losses)
    assert apart is not None
    assert 0 < apart < 1e-5
    assert not run.agreement("slowed").is_excused


def test_the_other_arms_survive(run: Run) -> None:
    assert [times.arm for times in run.cell.arms] == ["stock", "slowed", "wrong", "nan"]
    assert [speedup.arm for speedup in run.cell.speedups] == ["slowed"]
    assert run.agreement("slowed").agrees
    assert run.cell.noise is not None
    assert run.result.complete
    assert load(run.out / KIND.result) == run.result


def test_an_arm_that_is_slowed_by_a_tenth_is_measured_so(run: Run) -> None:
    """Three launches of three blocks give a wide interval; what lies just outside is let pass."""
    interval = run.cell.speedups[0].interval
    assert interval.low - 0.03 <= 1 / SLOWER <= interval.high + 0.03


def test_blocks_are_mirrored_and_hold_every_timed_arm_twice(run: Run) -> None:
    whole = [sample for sample in run.samples if sample.launch == 3]
    assert len(whole) == EFFORT.blocks * 2 * 3
    for block in range(EFFORT.blocks):
        order = [sample.arm for sample in whole if sample.block == block]
        assert order == order[::-1]
        assert sorted(order) == sorted(["stock", "stock again", "slowed"] * 2)


def test_meters_are_read_with_each_sample(run: Run) -> None:
    for sample in run.samples:
        assert 0 < sample.wall_s <= sample.elapsed_s
        assert sample.cpu_s > 0
        assert sample.canary_s > 0
        meters = (
            sample.run_delay_s,
            sample.busy_s,
            sample.steal_s,
            sample.throttled_s,
            sample.switches,
        )
        assert min(meters) >= 0
        assert sample.idle_s > 0
        assert sample.idle_cpu_s >= 0
    assert sum(timed_sample.busy_s for timed_sample in run.samples) > 0
    (end,) = (entry for entry in run.entries if isinstance(entry, End))
    assert sorted(end.peak_mb) == ["slowed", "stock", "stock again"]
    assert min(end.peak_mb.values()) > 100
    assert end.profiles == {}


def test_a_comparison_says_what_its_arms_were(run: Run) -> None:
    stock = run.result.arms[0]
    assert (stock.name, stock.tensorflow, stock.threading) == ("stock", "2.14.1", "Eigen")
    assert stock.kernel_library is None
    assert stock.raised_kernels >= 1, "tf.data's, in the stock wheel, too"
    assert [facts.name for facts in run.result.arms] == [
        *("stock", "slowed", "killed", "hung", "wrong", "nan")
    ]
    environments = {arm_times.arm: dict(arm_times.environment) for arm_times in run.cell.arms}
    threads = str(run.cell.vcpus)
    assert {environment["TF_NUM_INTRAOP_THREADS"] for environment in environments.values()} == {
        threads
    }
    times = run.cell.arms[0]
    assert len(set(times.losses)) == CHECKED_STEPS, "training moves the loss"
    assert min(times.import_s, times.build_s, times.first_steps_s) > 0


# --- arms that are refused before they are timed --------------------------------------------------


@pytest.fixture(scope="module")
def refusals(
    stock_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, WorkerError]:
    """What was said of arms that load at the same time and must not be measured."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "bin").mkdir()
    elsewhere = folder / "bin" / "python"
    elsewhere.write_text(f'#!/bin/sh\nexec "{stock_python}" "$@"\n', encoding="utf-8")
    elsewhere.chmod(0o755)
    arms = (
        plain_arm("elsewhere", elsewhere),
        replace(plain_arm("untuned", stock_python), tuned=True),
        plain_arm("starved", altered(stock_python, folder / "starved", STARVED)),
        plain_arm("backwards", altered(stock_python, folder / "backwards", BACKWARDS)),
    )
    actual = {}
    with contextlib.ExitStack() as stack:
        all_opened = [stack.enter_context(opened(refused_arm, folder)) for refused_arm in arms]
        for opened_session in all_opened:
            opened_session.start_load("mnist_mlp", 3, cpus())
        for opened_session in all_opened:
            with pytest.raises(WorkerError) as caught:
                loaded_and_timed(opened_session)
            actual[opened_session.arm.name] = caught.value
    return actual


def loaded_and_timed(session: Session) -> None:
    session.finish_load(cpus())
    session.sample(TRAIN, 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("elsewhere", r"arm elsewhere imported TensorFlow from .*, not from its environment"),
        ("untuned", r"arm untuned ran stock kernels.*(\n.*)*--arch native"),
        ("starved", r"arm starved (exited with 1|was ended by SIGABRT) during load"),
        ("backwards", r"arm backwards reports -\S+ s for a sample, which is not a positive time"),
    ],
)
def test_an_arm_that_must_not_be_measured_is_refused(
    name: str, words: str, refusals: dict[str, WorkerError]
) -> None:
    assert re.search(words, str(refusals[name]))
    assert refusals[name].arm == name


def test_an_arm_that_starts_from_other_numbers_is_marked(
    stock_python: Path, tmp_path: Path
) -> None:
    """As one with another version of NumPy may. The run ends and does not come back to it."""
    other_arm = plain_arm("other", altered(stock_python, tmp_path / "other", OTHER_NUMBERS))
    setting = asked(plain_arm("stock", stock_python), other_arm)
    (cell,) = compare(setting, tmp_path / "out").cells
    (failure,) = cell.failures
    assert failure.arm == "other"
    assert "different data" in failure.reason
    assert (cell.launches, cell.speedups) == (0, ())
    assert [type(entry) for entry in read_entries(tmp_path / "out" / KIND.journal, KINDS)] == [
        Fault
    ]


def test_a_python_without_tensorflow_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with opened(plain_arm("empty", Path(sys.executable)), tmp_path) as session:
        session.start_load("mnist_mlp", 3, cpus())
        with pytest.raises(WorkerError, match=r"exited with 1 during load[\s\S]*No module named"):
            session.finish_load(cpus())


def test_a_python_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkerError, match=r"No such file"),
        opened(plain_arm("gone", tmp_path / "bin" / "python"), tmp_path),
    ):
        pass


# --- one worker -----------------------------------------------------------------------------------


def test_a_worker_states_its_facts_and_times_every_phase(
    stock_python: Path, tmp_path: Path
) -> None:
    """One whose TensorFlow prints, and whose plugins write to descriptor 1 as C code does."""
    noisy = plain_arm("noisy", altered(stock_python, tmp_path / "noisy", NOISY))
    with opened(noisy, tmp_path) as session:
        session.start_load("cifar10_cnn", 3, cpus())
        facts = session.finish_load(cpus())
        assert facts["pid"] == session.pid
        assert facts["vcpus"] == list(cpus())
        assert facts["parameters"] == WORKLOADS["cifar10_cnn"].parameters
        assert Path(facts["tensorflow_file"]).is_relative_to(session.arm.prefix.resolve())
        assert facts["raised_kernels"]["OptionsDataset"] >= 1, "priority 2 in the stock wheel"
        assert "Tanh" not in facts["raised_kernels"]
        session.start_check(2)
        checked = session.finish_check()
        assert len(set(checked["losses"])) == 2
        assert len(checked["predictions"]) == 32 * 10
        assert sum(checked["predictions"]) == pytest.approx(32, rel=1e-3), "of softmax"
        for phase in (TRAIN, VALIDATE, AUGMENT):
            assert session.sample(phase, 2)["wall_s"] > 0
        assert session.read_peak_mb() > 100
        threads = [int(path.name) for path in Path(f"/proc/{session.pid}/task").iterdir()]
        assert len(threads) > 1
        assert {tuple(os.sched_getaffinity(thread)) for thread in threads} == {cpus()}
    text = (tmp_path / "noisy.log").read_text(encoding="utf-8")
    assert "noise from Python" in text
    assert "noise from a plugin" in text


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one CPU is all that there is")
def test_a_worker_moves_to_other_cpus_with_all_its_threads(
    stock_python: Path, tmp_path: Path
) -> None:
    last = max(os.sched_getaffinity(0))
    with opened(plain_arm("stock", stock_python), tmp_path) as session:
        session.start_load("mnist_mlp", 3, (last,))
        session.finish_load((last,))
        session.start_check(2)
        session.finish_check()
        session.pin_cpus(cpus())
        assert session.sample(TRAIN, 2)["wall_s"] > 0
        threads = [int(path.name) for path in Path(f"/proc/{session.pid}/task").iterdir()]
        assert {tuple(os.sched_getaffinity(thread)) for thread in threads} == {cpus()}


@pytest.mark.slow
def test_all_models_have_the_stated_parameters_and_input_shapes(stock_python: Path) -> None:
    script = f"""
        import json, sys
        sys.path += {ROOTS!r}
        import numpy as np
        import tensorflow as tf
        from tfbench.inside.workloads import WORKLOADS
        found = {{}}
        for name, workload in WORKLOADS.items():
            model = workload.build(tf.keras, 1)
            batch = np.zeros(workload.inputs, workload.inputs_dtype)
            shape = model(batch, training=False).shape
            found[name] = [model.count_params(), int(shape[0]), type(model.optimizer).__name__]
        print(json.dumps(found))
    """
    done = subprocess.run(
        [stock_python, "-P", "-c", textwrap.dedent(script)],
        env={"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(done.stdout)
    optimizers = ("RMSprop", "Adadelta", "RMSprop", "Adam", "Adam", "RMSprop")
    assert document == {
        name: [workload.parameters, workload.batch, optimizer]
        for (name, workload), optimizer in zip(WORKLOADS.items(), optimizers, strict=True)
    }


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_worker_ends_when_whoever_started_it_does(ending: signal.Signals, tmp_path: Path) -> None:
    script = f"""
        import sys, time
        sys.path += {ROOTS!r}
        from pathlib import Path
        from tfbench.arms.arm import Arm
        from tfbench.engine.workers import start_session
        arm = Arm(name="one", python=Path(sys.executable), label="")
        with start_session(arm, {{}}, Path({str(tmp_path / "log")!r})) as one:
            assert one.read_peak_mb() > 1
            print(one.pid, flush=True)
            time.sleep(60)
    """
    words = [sys.executable, "-P", "-c", textwrap.dedent(script)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert alive(worker)
        process.send_signal(ending)
        assert process.wait(30) == -ending
    assert not left_running([worker])


def test_a_worker_in_the_middle_of_steps_ends_with_whoever_started_it(
    stock_python: Path, tmp_path: Path
) -> None:
    script = f"""
        import os, sys, time
        from random import Random
        sys.path += {ROOTS!r}
        from pathlib import Path
        from tfbench.arms.arm import Arm
        from tfbench.engine.workers import start_sessions
        arm = Arm(name="one", python=Path({str(stock_python)!r}), label="")
        vcpus = tuple(sorted(os.sched_getaffinity(0)))[:1]
        with start_sessions([arm], vcpus, Random(1), Path({str(tmp_path / "log")!r})) as sessions:
            one = sessions["one"]
            one.start_load("mnist_mlp", 1, vcpus)
            one.finish_load(vcpus)
            one.send("sample", phase="train", steps=1_000_000)
            time.sleep(0.5)
            print(one.pid, flush=True)
            time.sleep(60)
    """
    words = [sys.executable, "-P", "-c", textwrap.dedent(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert alive(worker)
        process.kill()
        process.wait(30)
        ended = gone(worker, within_s=2)
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended


def left_running(pids: Collection[int]) -> tuple[int, ...]:
    """Those that do not end within half a minute."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not any(map(alive, pids)), "the end of all workers", limit_s=30)
    return tuple(filter(alive, pids))


@pytest.mark.slow
def test_the_program_that_a_full_build_learns_from_trains_any_workload(stock_python: Path) -> None:
    """As tools.pgo runs it: by its path, with nothing of ours on the path."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(stock_python), training.__file__, "2", "mnist_mlp", "imdb_bilstm"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=300)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "mnist_mlp",
        "imdb_bilstm",
    ]
