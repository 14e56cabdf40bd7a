"""Real training to an accuracy in the stock TensorFlow: reached, not reached, gone on with."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from tfbench.arms.arm import Arm
from tfbench.commands import AccuracyOptions
from tfbench.engine.journal import JOURNAL, read_entries
from tfbench.experiments.accuracy import datasets, handler
from tfbench.experiments.accuracy.results import Accuracy
from tfbench.experiments.cell import Outcome
from tfbench.experiments.cell_schedule import KINDS
from tfcore.records import decode_record, load
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

ROOTS = [str(Path(__file__).parents[2] / name) for name in ("build", "benchmarks")]
WAIT_S = 120.0
EASY, QUICKLY = "70%", {"seeds": "2", "vcpus": "1"}
STOPPED = """
import sys
from pathlib import Path
sys.path[:0] = {roots}
from tfbench.experiments.accuracy import datasets, handler
from tfbench.commands import AccuracyOptions
from tfbench.arms.arm import Arm
from tfcore import settings
paths = settings.paths()
config = handler.parse_options(AccuracyOptions(**{options}))
examples = datasets.load_examples(config.data, config.file, paths, Path("/"))
arm = Arm(name="stock", python=Path({python}), label="stock")
handler.train(config, {{arm.name: arm}}, examples, {out}, paths)
"""


def asked(python: Path, out: Path, paths: Paths, **options: str) -> Accuracy:
    config = handler.parse_options(AccuracyOptions(**options))
    examples = datasets.load_examples(config.data, config.file, paths, Path("/"))
    arm = Arm(name="stock", python=python, label="stock")
    return handler.train(config, {arm.name: arm}, examples, str(out), paths)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learnt")


@pytest.fixture(scope="module")
def learnt(stock_python: Path, paths: Paths, folder: Path) -> Accuracy:
    return asked(stock_python, folder, paths, reach=EASY, **QUICKLY)


def test_digits_are_learnt_to_an_easy_target(learnt: Accuracy, folder: Path) -> None:
    result = learnt
    assert [(run.seed, run.outcome) for run in result.runs] == [(1, Outcome.OK), (2, Outcome.OK)]
    assert all(run.reached and run.reached.accuracy >= 0.7 for run in result.runs)
    assert result.summaries[0].reached == 2
    for run in result.runs:
        assert run.images == 1344
        assert run.start_up is not None
        assert min(dataclasses.astuple(run.start_up)) > 0
        assert all(epoch.train_s > 0 and epoch.test_s > 0 for epoch in run.epochs)
        accuracies = [epoch.accuracy for epoch in run.epochs]
        assert all(accuracy < 0.7 for accuracy in accuracies[:-1])
        expected = [accuracy * 450 for accuracy in accuracies]
        assert expected == pytest.approx([round(value) for value in expected])
    assert decode_record(Accuracy, load(folder / "accuracy.json", schema=result.schema)) == result
    assert "<svg" in (folder / "report.html").read_text("utf-8")
    assert "2 of 2 seeds reached 70%" in (folder / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_a_target_that_one_epoch_does_not_reach_is_marked(
    stock_python: Path, paths: Paths, tmp_path: Path
) -> None:
    result = asked(stock_python, tmp_path, paths, reach="99.9%", seeds="1", epochs="1", vcpus="1")
    (run,) = result.runs
    assert run.outcome is Outcome.OK
    assert run.reached is None
    assert len(run.epochs) == 1
    assert result.summaries[0].reached == 0
    assert "not reached" in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_a_run_that_was_killed_takes_no_finished_seed_again(
    stock_python: Path, paths: Paths, tmp_path: Path
) -> None:
    options = {"reach": EASY, **QUICKLY}
    program = textwrap.dedent(STOPPED).format(
        roots=ROOTS, options=options, python=repr(str(stock_python)), out=repr(str(tmp_path))
    )
    stopped = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        until = time.monotonic() + WAIT_S
        journal = tmp_path / JOURNAL
        while not (journal.is_file() and b"\n" in journal.read_bytes()):
            assert stopped.poll() is None, "it ended before its first seed did"
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.killpg(stopped.pid, signal.SIGKILL)
        stopped.wait()
    (first,) = read_entries(journal, KINDS)
    assert not (tmp_path / "accuracy.json").exists()
    result = asked(stock_python, tmp_path, paths, **options)
    before, after = read_entries(journal, KINDS)
    assert before == first
    assert after.key != first.key
    assert result.summaries[0].reached == 2


@pytest.mark.slow
def test_a_file_of_mnists_form_trains_mnists_model(
    stock_python: Path, paths: Paths, tmp_path: Path
) -> None:
    """The digits, enlarged: real images, though not MNIST's."""
    digits = datasets.load_digits_set().arrays
    enlarged = [
        np.pad(np.kron(part[..., 0] * 15, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
        for part in (digits[0], digits[2])
    ]
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=enlarged[0], y_train=digits[1], x_test=enlarged[1], y_test=digits[3])
    options = {"data": "mnist", "data_file": str(path), "reach": "60%", "seeds": "1"}
    result = asked(stock_python, tmp_path / "out", paths, epochs="3", **options)
    assert result.asked.workload == "mnist_cnn"
    assert result.runs[0].images == 1280
    assert result.runs[0].reached


@pytest.mark.slow
def test_the_same_seed_is_the_same_training(
    learnt: Accuracy, stock_python: Path, paths: Paths, tmp_path: Path
) -> None:
    again = asked(stock_python, tmp_path, paths, reach=EASY, seeds="1", vcpus="1")
    first, second = (
        [(epoch.accuracy, epoch.loss) for epoch in result.runs[0].epochs]
        for result in (learnt, again)
    )
    assert first == second
    assert first != [(epoch.accuracy, epoch.loss) for epoch in learnt.runs[1].epochs]
