"""The real worker in the stock TensorFlow's environment: its answers, and what can go wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfbench.arms import Arm, environment
from tfbench.comparison import COMPARISON, SAMPLES, Effort, compare, load
from tfbench.samples import read_samples
from tfbench.sessions import WORKER, Session, session
from tfbench.workloads import WORKLOADS
from tfbuild.errors import AgreementError, HostError, WorkerError

pytestmark = pytest.mark.toolchain

ROOTS = [str(Path(__file__).parents[2] / name) for name in ("build", "benchmarks")]
TINY = Effort(launches=1, blocks=2)


def arm(name: str, python: Path, **env: str) -> Arm:
    return Arm(name=name, python=python, label="stock", env=tuple(env.items()))


@contextlib.contextmanager
def opened(one: Arm, folder: Path) -> Iterator[Session]:
    env = environment(one, vcpus=1, home=folder, padding=7, inherited=os.environ)
    with session(one, env, folder / f"{one.name}.log") as started:
        yield started


def first_cpu() -> tuple[int, ...]:
    return (min(os.sched_getaffinity(0)),)


def running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running(pid)


def test_two_arms_with_one_tensorflow_compute_the_same(stock_python: Path, tmp_path: Path) -> None:
    arms = (arm("stock", stock_python), arm("again", stock_python))
    said: list[str] = []
    found = compare(
        arms,
        ["mnist_mlp"],
        vcpus=[1],
        out=tmp_path,
        effort=TINY,
        seed=3,
        on_progress=lambda done, total, detail: said.append(f"{done}/{total} {detail}"),
    )
    (cell,) = found.cells
    stock, again = cell.arms
    assert stock.losses == again.losses
    assert len(set(stock.losses)) == 5, "training moves the loss"
    assert cell.agreements[0].difference == 0
    assert cell.blocks == 2
    assert load(tmp_path / COMPARISON) == found

    samples = read_samples(tmp_path / SAMPLES)
    assert [(s.block, s.position) for s in samples] == [(b, p) for b in range(2) for p in range(4)]
    assert {s.steps for s in samples} == {cell.steps}
    for block in (samples[:4], samples[4:]):
        order = [sample.arm for sample in block]
        assert order == order[::-1]
        assert sorted(order) == ["again", "again", "stock", "stock"]
    assert all(s.wall_s > 0 and s.cpu_s > 0 and s.run_delay_s >= 0 for s in samples)
    assert said[0].startswith("0/1 mnist_mlp")
    assert dict(stock.environment)["TF_NUM_INTRAOP_THREADS"] == "1"
    assert found.arms[0].kernel_library is None


def test_the_worker_states_its_facts_and_keeps_its_order(
    stock_python: Path, tmp_path: Path
) -> None:
    with opened(arm("stock", stock_python), tmp_path) as one:
        facts = one.load("mnist_mlp", 3, first_cpu())
        assert facts["pid"] == one.pid
        assert facts["vcpus"] == list(first_cpu())
        assert facts["parameters"] == WORKLOADS["mnist_mlp"].parameters
        assert Path(facts["tensorflow_file"]).is_relative_to(one.arm.prefix.resolve())
        assert facts["raised_kernels"]["OptionsDataset"] >= 1, "priority 2 in the stock wheel"
        assert "Tanh" not in facts["raised_kernels"]
        assert min(facts["import_s"], facts["first_step_s"]) > 0
        assert one.losses(3) == one.losses(5)[:3]
        one.sample(2)
        with pytest.raises(WorkerError, match="before samples are taken"):
            one.losses(6)


def test_all_models_have_the_stated_parameters_and_input_shapes(stock_python: Path) -> None:
    script = f"""
        import json, sys
        sys.path += {ROOTS!r}
        import numpy as np
        import tensorflow as tf
        from tfbench.workloads import WORKLOADS
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
    found = json.loads(done.stdout)
    optimizers = ("RMSprop", "Adadelta", "RMSprop", "Adam", "Adam", "RMSprop")
    assert found == {
        name: [workload.parameters, workload.batch, optimizer]
        for (name, workload), optimizer in zip(WORKLOADS.items(), optimizers, strict=True)
    }


def test_the_seed_decides_where_training_starts(stock_python: Path, tmp_path: Path) -> None:
    seen = []
    for seed in (3, 4):
        with opened(arm(f"seed{seed}", stock_python), tmp_path) as one:
            facts = one.load("mnist_mlp", seed, first_cpu())
            seen.append((facts["inputs_sha256"], one.losses(2)))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_a_killed_worker_is_an_error_with_the_signals_name(
    stock_python: Path, tmp_path: Path
) -> None:
    with opened(arm("stock", stock_python), tmp_path) as one:
        one.load("mnist_mlp", 3, first_cpu())
        os.kill(one.pid, signal.SIGKILL)
        with pytest.raises(
            WorkerError, match=r"arm stock was ended by SIGKILL during sample[\s\S]*memory runs out"
        ):
            one.sample(1)


def test_a_hanging_worker_is_an_error_and_does_not_stay(stock_python: Path, tmp_path: Path) -> None:
    with opened(arm("stock", stock_python), tmp_path) as one:
        os.kill(one.pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"did not answer quit within 0\.2 s"):
            one.request("quit", 0.2)
    assert not running(one.pid)


def test_an_arm_that_imports_another_tensorflow_is_an_error(
    stock_python: Path, tmp_path: Path
) -> None:
    """A Python whose own environment is empty and that finds the stock packages all the same."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{stock_python}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with (
        opened(arm("tuned", python), tmp_path) as one,
        pytest.raises(WorkerError, match="arm tuned imported TensorFlow from"),
    ):
        one.load("mnist_mlp", 3, first_cpu())


def test_a_tuned_arm_without_tuned_kernels_is_an_error(stock_python: Path, tmp_path: Path) -> None:
    tuned = dataclasses.replace(arm("tuned", stock_python), tuned=True)
    with opened(tuned, tmp_path) as one, pytest.raises(HostError, match="ran stock kernels"):
        one.load("mnist_mlp", 3, first_cpu())


def test_a_python_without_tensorflow_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with (
        opened(arm("empty", Path(sys.executable)), tmp_path) as one,
        pytest.raises(WorkerError, match=r"exited with 1 during load[\s\S]*No module named"),
    ):
        one.load("mnist_mlp", 3, first_cpu())


def test_a_python_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkerError, match=r"did not start.*No such file"),
        opened(arm("gone", tmp_path / "bin" / "python"), tmp_path),
    ):
        pass


def test_what_tensorflow_prints_does_not_reach_the_answers(
    stock_python: Path, tmp_path: Path
) -> None:
    """A sitecustomize that writes to descriptor 1 later, as a plugin's C code would."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, threading\n"
        "threading.Timer(0.5, os.write, (1, b'noise from a plugin\\n')).start()\n",
        encoding="utf-8",
    )
    noisy = arm("noisy", stock_python, PYTHONPATH=str(tmp_path))
    with opened(noisy, tmp_path) as one:
        assert one.load("mnist_mlp", 3, first_cpu())["tensorflow"]
    assert "noise from a plugin" in (tmp_path / "noisy.log").read_text(encoding="utf-8")


def test_a_worker_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", WORKER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    with process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def test_arms_that_train_differently_are_an_error_and_are_written_down(
    stock_python: Path, tmp_path: Path
) -> None:
    """An arm whose optimizer a sitecustomize slows to a tenth of its learning rate."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
            import sys
            if any(word.endswith("worker.py") for word in sys.orig_argv):
                import tensorflow as tf
                real = tf.keras.optimizers.RMSprop
                tf.keras.optimizers.RMSprop = lambda rate, **more: real(rate / 10, **more)
        """),
        encoding="utf-8",
    )
    arms = (arm("stock", stock_python), arm("wrong", stock_python, PYTHONPATH=str(tmp_path)))
    out = tmp_path / "out"
    with pytest.raises(AgreementError, match=r"mnist_mlp, first losses of stock .* of wrong"):
        compare(arms, ["mnist_mlp"], vcpus=[1], out=out, effort=TINY, seed=3)
    (cell,) = load(out / COMPARISON).cells
    assert not cell.agrees
    assert cell.arms[0].losses != cell.arms[1].losses
    assert read_samples(out / SAMPLES) == ()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_whole_samples_and_no_workers(
    ending: signal.Signals, stock_python: Path, tmp_path: Path
) -> None:
    script = f"""
        import sys
        sys.path += {ROOTS!r}
        from pathlib import Path
        from tfbench.arms import Arm
        from tfbench.comparison import Effort, compare
        python = Path({str(stock_python)!r})
        arms = [Arm(name=name, python=python, label="stock") for name in ("a", "b")]
        effort = Effort(launches=1, blocks=10_000)
        compare(arms, ["mnist_mlp"], vcpus=[1], out=Path({str(tmp_path)!r}), effort=effort, seed=3)
    """
    journal = tmp_path / SAMPLES
    with subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(script)]) as process:
        try:
            deadline = time.monotonic() + 120
            while not (journal.exists() and journal.read_bytes().count(b"\n") >= 3):
                assert process.poll() is None, "the run ended by itself"
                assert time.monotonic() < deadline, "no samples came"
                time.sleep(0.05)
            workers = children(process.pid)
            process.send_signal(ending)
            assert process.wait(30) == -ending
        finally:
            process.kill()
    assert len(workers) == 2
    assert all(ends_within(pid, 30) for pid in workers)
    assert journal.read_bytes().endswith(b"}\n")
    assert len(read_samples(journal)) >= 3
    assert not (tmp_path / COMPARISON).exists()


def children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text(encoding="ascii").split()]
