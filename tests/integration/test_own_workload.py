"""Users' files in a real worker: what trains, what does not and how that is told, and advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.later import later
from tests.builders.own_cpu import OwnCpu
from tests.builders.user_workloads import (
    DATA,
    DATASET,
    LIMIT_S,
    MODEL,
    TEXTS,
    TWO_INPUTS,
    arm,
    cpus,
    opened,
    written,
)

from tfbench.inside.compile_arguments import JIT, TOGETHER
from tfbench.inside.workload_name import format_own_name
from tfbench.inside.workloads import list_fit_workloads, set_sizes
from tfbench.tuning.trial import try_out
from tfcore.errors import UsageError, WorkerError
from tfcore.run import run

pytestmark = pytest.mark.toolchain

PROGRAMS = Path(__file__).parents[2] / "benchmarks/programs"
SUBCLASSED = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = layers.Dense(16, "relu"), layers.Dense(3)
        self.second = tf.keras.optimizers.SGD(0.01)

    def call(self, x):
        return self.last(self.hidden(x))

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(self(x) - tf.cast(y, tf.float32)[:, None]))
        for layer, optimizer in (self.hidden, self.optimizer), (self.last, self.second):
            weights = layer.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}

def build():
    model = Net()
    model.compile("adam")
    return model
""" + DATA.format(width=8)
"""Not built, and with two optimizers."""
GAN = """
class Gan(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.maker = tf.keras.Sequential([layers.Dense(16, "relu"), layers.Dense(8)])
        self.judge = tf.keras.Sequential([tf.keras.Input((8,)), layers.Dense(1)])

    def compile(self, maker, judge):
        super().compile()
        self.optimizers = maker, judge

    def train_step(self, real):
        wrong = tf.keras.losses.BinaryCrossentropy(from_logits=True)
        with tf.GradientTape(persistent=True) as tape:
            made = self.judge(self.maker(tf.random.normal((tf.shape(real)[0], 4))))
            found = self.judge(real)
            judged = wrong(tf.ones_like(found), found) + wrong(tf.zeros_like(made), made)
            passed = wrong(tf.ones_like(made), made)
        parts = (self.maker, passed), (self.judge, judged)
        for (part, loss), optimizer in zip(parts, self.optimizers):
            weights = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"maker": passed, "judge": judged}

def build():
    model = Gan()
    model.compile(tf.keras.optimizers.Adam(1e-3), tf.keras.optimizers.Adam(1e-3))
    return model

def data():
    draw = np.random.default_rng(1)
    return tf.data.Dataset.from_tensor_slices(draw.random((64, 8), np.float32)).batch(16)
"""
"""Without call(), without a metric called loss, and with a part that is not built."""
OUT_OF_RANGE = """
def build():
    words = [tf.keras.Input((4,)), layers.Embedding(4, 3), layers.Flatten(), layers.Dense(1)]
    model = tf.keras.Sequential(words)
    model.compile("sgd", "mse")
    return model

def data():
    return np.full((64, 4), 9), np.zeros(64)
"""


def tried(python: Path, file: Path, folder: Path, **env: str) -> dict[str, Any]:
    with opened(arm(python, file, **env), folder) as session:
        return session.request(
            "try",
            LIMIT_S,
            workload=format_own_name(file.name),
            seed=1,
            vcpus=cpus(),
        )


@pytest.mark.parametrize(
    ("content", "batch"),
    [
        pytest.param(MODEL, 32, id="made up"),
        pytest.param(MODEL + DATA.format(width=8), 32, id="arrays", marks=pytest.mark.slow),
        pytest.param(MODEL + DATASET, 16, id="dataset"),
        pytest.param(TEXTS, 2, id="texts"),
        pytest.param(TWO_INPUTS, 32, id="two inputs"),
        pytest.param(SUBCLASSED, 32, id="subclassed"),
        pytest.param(GAN, 16, id="no call", marks=pytest.mark.slow),
    ],
)
def test_a_users_model_trains(stock_python: Path, content: str, batch: int, tmp_path: Path) -> None:
    record = tried(stock_python, written(tmp_path, content), tmp_path)
    assert record["problem"] == ""
    assert record["batch"] == batch
    assert record["step_s"] > 0
    assert None not in record["losses"]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_each_model_that_no_part_was_written_for_trains(
    stock_python: Path, path: Path, tmp_path: Path
) -> None:
    record = tried(stock_python, path, tmp_path)
    assert record["problem"] == ""
    assert None not in record["losses"]
    assert f"| `{path.name}` |" in (PROGRAMS / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (MODEL.replace('model.compile("adam", loss)', "pass"), "not compiled"),
        (MODEL + DATA.format(width=9), "expected shape=(None, 8), found shape=(32, 9)"),
        *later(
            (MODEL.replace(", loss)", ")"), "no loss"),
            (MODEL + "def data():\n    return np.zeros((3, 8)), np.zeros(4)", "different lengths"),
            (
                MODEL.replace("(8,)", "(None,)").replace(
                    "layers.Dense(16", "layers.Reshape((8,)), layers.Dense(16"
                ),
                "no fixed shape",
            ),
        ),
    ],
)
def test_what_cannot_train_is_told_in_one_line(
    stock_python: Path, content: str, words: str, tmp_path: Path
) -> None:
    record = tried(stock_python, written(tmp_path, content), tmp_path)
    assert words in record["problem"]
    assert "\n" not in record["problem"]


@pytest.mark.slow
def test_a_model_without_call_cannot_be_asked(stock_python: Path, tmp_path: Path) -> None:
    file = written(tmp_path, GAN)
    name = set_sizes(format_own_name(file.name), batch=1, clients=1)
    with opened(arm(stock_python, file), tmp_path) as session:
        record = session.request("try", LIMIT_S, workload=name, seed=1, vcpus=cpus())
    assert "no call()" in record["problem"]


def test_a_worker_that_ends_says_why(stock_python: Path, tmp_path: Path) -> None:
    file = written(tmp_path, OUT_OF_RANGE)
    with opened(arm(stock_python, file), tmp_path) as session:
        session.start_load(format_own_name(file.name), 1, cpus())
        session.finish_load(cpus())
        with pytest.raises(WorkerError) as caught:
            session.request("check", LIMIT_S, steps=1)
    assert caught.value.message.endswith("InvalidArgumentError: indices[0,0] = 9 is not in [0, 4)")


SAVE = """
import sys
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
import model as user
made = user.build()
made.save(sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own.keras", "own.h5", "saved"])
def test_a_saved_model_trains(stock_python: Path, name: str, tmp_path: Path) -> None:
    written(tmp_path, MODEL)
    path = tmp_path / name
    run([str(stock_python), "-c", SAVE, str(tmp_path), str(path)], timeout_s=LIMIT_S)
    record = tried(stock_python, path, tmp_path)
    assert record["problem"] == ""
    assert record["parameters"] == 8 * 16 + 16 + 16 * 3 + 3


@pytest.mark.slow
def test_advice_computes_the_same(stock_python: Path, tmp_path: Path) -> None:
    file = written(tmp_path, MODEL.replace("layers.Dropout(0.2), ", ""))
    plain, together, compiled = (
        tried(stock_python, file, tmp_path, **env) for env in ({}, {TOGETHER: "4"}, {JIT: "True"})
    )
    assert together["losses"] == plain["losses"]
    assert together["predictions"] == plain["predictions"]
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-4)


@pytest.mark.slow
def test_batches_in_one_execution_are_all_trained(stock_python: Path, tmp_path: Path) -> None:
    """The optimizer counts its steps: 10 asked in calls of 4, 4, 1 and 1."""
    file = written(tmp_path, MODEL + "\nmade = []\n")
    file.write_text(
        file.read_text().replace("    return model", "    made.append(model)\n    return model")
        + "\nimport atexit\n"
        + f"atexit.register(lambda: open({str(tmp_path / 'steps')!r}, 'w')"
        + ".write(str(int(made[0].optimizer.iterations))))\n"
    )
    with opened(arm(stock_python, file, **{TOGETHER: "4"}), tmp_path) as session:
        session.start_load(format_own_name(file.name), 1, cpus())
        session.finish_load(cpus())
        session.sample("train", 10)
        session.request("quit", LIMIT_S)
        session._process.wait(60)
    assert (tmp_path / "steps").read_text() == "10"


@pytest.mark.parametrize("content", [MODEL + DATA.format(width=8), *later(MODEL + DATASET, GAN)])
def test_epochs_of_fit_are_timed(stock_python: Path, content: str, tmp_path: Path) -> None:
    file = written(tmp_path, content)
    _, name = list_fit_workloads(format_own_name(file.name))
    with opened(arm(stock_python, file), tmp_path) as session:
        session.start_load(name, 1, cpus())
        session.finish_load(cpus())
        first = session.request("check", LIMIT_S, steps=5)
        taken = session.sample("fit", 3)
    assert len(first["losses"]) == 1
    assert len(taken["slices"]) == 3
    assert 0 < taken["wall_s"] < first["first_steps_s"], "the first epoch is traced"
    assert taken["beside_s"] > 0


def test_data_that_change_each_time_are_refused(stock_python: Path, tmp_path: Path) -> None:
    file = written(
        tmp_path, MODEL + DATA.format(width=8).replace("default_rng(1)", "default_rng()")
    )
    with pytest.raises(UsageError, match="each time"):
        try_out(
            arm(stock_python, file),
            format_own_name(file.name),
            cpus(),
            1,
            tmp_path,
        )


def test_the_trial_of_a_good_file_says_what_it_is(
    stock_python: Path, own_cpu: OwnCpu, tmp_path: Path
) -> None:
    file = written(tmp_path, MODEL + DATA.format(width=8))
    first_steps = try_out(arm(stock_python, file), format_own_name(file.name), cpus(), 1, tmp_path)
    assert (first_steps.batch, first_steps.parameters) == (32, 195)
    assert first_steps.onednn == own_cpu.onednn_by_default


@pytest.mark.slow
@pytest.mark.parametrize("onednn", [True, False])
def test_the_trial_says_whether_onednn_is_on(
    stock_python: Path, tmp_path: Path, *, onednn: bool
) -> None:
    file = written(tmp_path, MODEL)
    chosen = arm(stock_python, file, TF_ENABLE_ONEDNN_OPTS=str(int(onednn)))
    assert try_out(chosen, format_own_name(file.name), cpus(), 1, tmp_path).onednn == onednn
