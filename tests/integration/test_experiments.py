"""Cells in the stock TensorFlow: nets, phases that read files, limits, forms of fit, the kit."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.builders.later import later

from tfbench.arms.arm import Arm
from tfbench.costs import kit_runs
from tfbench.experiments import cell_schedule, fit_terms
from tfbench.experiments.cell import Cell, LaunchResult, Outcome
from tfbench.experiments.sizing import parse_source
from tfbench.inside import fitting, steps
from tfbench.inside.inputs import RAW
from tfbench.inside.phases import PREPROCESS, TRAIN
from tfbench.inside.workloads import NAMES, PROGRAM, WORKLOADS, find_workload
from tfbench.kit import archive
from tfbench.kit.phases import group_launches
from tfcore.records import convert_record

pytestmark = pytest.mark.toolchain

ROOT = Path(steps.__file__).parents[2]
COUNT = """
import json, tensorflow as tf
from tfbench.inside.workloads import find_workload
from tfbench.inside.worker import build_model
found = {}
for name in json.loads(input()):
    model, _ = build_model(tf.keras, find_workload(name), 1)
    found[name] = [model.count_params(), list(model.output_shape)]
    tf.keras.backend.clear_session()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def arm(stock_python: Path) -> Arm:
    return Arm(name="stock", python=stock_python, label="the stock wheel")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


def cell(workload: str, phase: str, *, memory_mb: float | None = None, **request: Any) -> Cell:
    return Cell(
        arm="stock",
        place=(("workload", workload), ("phase", phase), ("asked", json.dumps(request))),
        launch=0,
        module=steps.__name__,
        request={"workload": workload, "phase": phase, "seed": 1, "steps": 4, **request},
        vcpus=(0,),
        memory_mb=memory_mb,
    )


def launched(arm: Arm, out: Path, tested_cell: Cell) -> LaunchResult:
    return cell_schedule.run_cells([tested_cell], {"stock": arm}, out, seed=1)[tested_cell.key]


@pytest.mark.slow
def test_every_net_has_the_recorded_parameters(stock_python: Path) -> None:
    names = [name for name in NAMES if name not in WORKLOADS]
    done = subprocess.run(
        [stock_python, "-P", "-c", COUNT],
        input=json.dumps(names) + "\n",
        env={"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(done.stdout.splitlines()[-1])
    assert {name: count for name, (count, _) in document.items()} == {
        name: find_workload(name).parameters for name in names
    }
    for name, (_, shape) in document.items():
        classes = (
            1000 if find_workload(name).image and find_workload(name).image != 8 else shape[-1]
        )
        assert shape[-1] == classes, name


@pytest.mark.parametrize("workload", ["ptb_lstm_small:batch=4", *later("mnist_cnn:batch=8")])
@pytest.mark.parametrize("phase", steps.PHASES)
def test_phases_read_files(arm: Arm, folder: Path, workload: str, phase: str) -> None:
    own_path = folder / workload.replace(":", "-")
    source = parse_source("50MB/s").build_request(
        str(own_path), str(own_path) + ".sink", generate=32
    )
    launch = launched(arm, folder, cell(workload, phase, source=source))
    assert launch.outcome is Outcome.OK, launch.reason
    answer = launch.answer
    assert len(answer["step_s"]) == len(answer["waited_s"]) == len(answer["rss_mb"]) == 4
    both = zip(answer["waited_s"], answer["step_s"], strict=True)
    assert all(0 < waited <= step for waited, step in both)
    assert all(loss is not None for loss in answer["losses"])
    if phase == PREPROCESS:
        assert answer["losses"][-1] > 8 * 4, "bytes of a batch"
        assert Path(str(own_path) + ".sink").stat().st_size > 0


@pytest.mark.slow
def test_a_folder_of_ones_own_is_read_and_a_broken_image_is_named(arm: Arm, folder: Path) -> None:
    own_path = folder / "mine"
    generated = folder / "generated"
    first = parse_source("cached").build_request(str(generated), str(folder / "sink"), generate=8)
    net = "mnist_cnn:batch=4"
    assert launched(arm, folder, cell(net, PREPROCESS, source=first)).outcome is Outcome.OK
    for path in sorted((generated / RAW).rglob("*.jpg")):
        copy = own_path / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    request = parse_source("cached").build_request(str(own_path), str(folder / "sink"), generate=0)
    for phase in steps.PHASES:
        assert launched(arm, folder, cell(net, phase, source=request)).outcome is Outcome.OK
    for path in own_path.rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:40])
    for phase in (TRAIN, PREPROCESS):
        broken = launched(arm, folder, cell(net, phase, source=request, steps=5))
        assert broken.outcome is Outcome.REFUSED, broken.reason
        assert "0/000000.jpg and 7 more" in broken.reason, broken.reason
    too_few = launched(arm, folder, cell("mnist_cnn:batch=64", TRAIN, source=request))
    assert too_few.outcome is Outcome.REFUSED
    assert "fewer examples (8) than a batch (64)" in too_few.reason


def test_too_little_memory_is_a_mark(arm: Arm, folder: Path) -> None:
    launch = launched(arm, folder, cell("vgg16:image=64:batch=4", TRAIN, memory_mb=500.0))
    assert launch.outcome is Outcome.OUT_OF_MEMORY, launch.reason


@pytest.mark.slow
def test_augmented_images_train(arm: Arm, folder: Path) -> None:
    launch = launched(arm, folder, cell("alexnet:image=64:batch=2", TRAIN, augmented=True))
    assert launch.outcome is Outcome.OK, launch.reason
    assert launch.answer["batch"] == 2


@pytest.mark.slow
def test_fits_take_the_steps_that_their_forms_say(arm: Arm, folder: Path) -> None:
    forms = tuple(fit_terms.list_forms(4, 6))
    tested_cell = Cell(
        arm="stock",
        place=(("arm", "stock"), ("device", "CPU")),
        launch=0,
        module=fitting.__name__,
        request={
            "workload": "iris_mlp",
            "seed": 1,
            "rounds": 2,
            "device": "",
            "forms": convert_record(forms),
        },
        vcpus=(0,),
    )
    launch = launched(arm, folder, tested_cell)
    assert launch.outcome is Outcome.OK, launch.reason
    assert launch.answer["steps"] == [form.epochs * -(-105 * form.repeat // 20) for form in forms]
    assert all(len(seconds) == 2 for seconds in launch.answer["seconds"])
    measured = {
        form: (fit_terms.count_parts(form, taken), min(seconds))
        for form, taken, seconds in zip(
            forms, launch.answer["steps"], launch.answer["seconds"], strict=True
        )
    }
    solved = fit_terms.solve_terms(measured)
    assert solved.compute_seconds(measured[forms[0]][0]) > 0


def test_a_device_that_is_not_there_is_a_mark(arm: Arm, folder: Path) -> None:
    request: Mapping[str, Any] = {
        "workload": "iris_mlp",
        "seed": 1,
        "rounds": 1,
        "device": "GPU:7",
        "forms": convert_record(fit_terms.list_forms(2, 6)),
    }
    tested_cell = Cell(
        arm="stock",
        place=(("device", "GPU:7"),),
        launch=0,
        module=fitting.__name__,
        request=request,
        vcpus=(0,),
    )
    launch = launched(arm, folder, tested_cell)
    assert launch.outcome is Outcome.NOT_HERE
    assert "GPU:7" in launch.reason


def test_the_kit_needs_nothing_of_this_project(stock_python: Path, tmp_path: Path) -> None:
    (tmp_path / "kit.pyz").write_bytes(archive.build_archive())
    command = [str(stock_python), "-I", "kit.pyz", "--workloads", "iris_mlp", "--launches", "1"]
    command += ["--seconds", "0.1", "--arm", "here"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "2 of 2" in first.stderr
    written = (tmp_path / "samples.jsonl").read_bytes()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "of 2  " not in again.stderr, "what is known is not run again"
    assert (tmp_path / "samples.jsonl").read_bytes() == written
    launches = kit_runs.read_launches(tmp_path / "samples.jsonl")
    assert [launch.outcome for launch in launches] == ["ok"] * 2
    assert {(launch.arm, launch.phase, launch.launches) for launch in group_launches(launches)} == {
        ("here", "train", 1),
        ("here", "validate", 1),
    }


def test_what_the_kit_does_not_know_ends_with_a_line(stock_python: Path, tmp_path: Path) -> None:
    (tmp_path / "kit.pyz").write_bytes(archive.build_archive())
    command = [str(stock_python), "-I", "kit.pyz", "--workloads", "resnet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: unknown workload resnet")


OWN = """
import numpy as np, tensorflow as tf
def build():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense({units})])
    model.compile("sgd", "mse")
    return model
def data():
    return np.zeros((64, 4), np.float32), np.zeros((64, 2), np.float32)
"""


@pytest.mark.parametrize(
    ("units", "outcome", "message"),
    [("2", Outcome.OK, ""), ("nothing", Outcome.REFUSED, "line 4: NameError")],
)
def test_a_workload_of_ones_own(
    arm: Arm, tmp_path: Path, units: str, outcome: Outcome, message: str
) -> None:
    own_path = tmp_path / "model.py"
    own_path.write_text(OWN.format(units=units), "utf-8")
    tested_cell = dataclasses.replace(cell("own:model.py", TRAIN), env=((PROGRAM, str(own_path)),))
    launch = launched(arm, tmp_path, tested_cell)
    assert launch.outcome is outcome
    assert message in launch.reason
    if outcome is Outcome.OK:
        assert (launch.answer["batch"], launch.answer["parameters"]) == (32, 10)
