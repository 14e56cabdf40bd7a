"""What of a user's file is read without TensorFlow; for the rest see test_own_workload.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tfbench.inside import programs
from tfbench.inside.programs import ProgramError, format_error
from tfbench.inside.workload_name import format_own_name, parse_name
from tfbench.inside.workloads import WORKLOADS, find_batch_size, find_schedule

DRAW = np.random.default_rng(1)


def failed(path: Path, content: str) -> str:
    path.write_text(content)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  (whatever the file raises)
        programs._load_module(path).build()
    return format_error(caught.value, path)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            "import nothing_like_it",
            "line 1: ModuleNotFoundError: No module named 'nothing_like_it'",
        ),
        ("def build():\n    return 1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("x = 1\nx = = 2", "line 2: SyntaxError: invalid syntax (model.py, line 2)"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
        (
            "def build():\n    raise ValueError('in user code:\\n\\n  last')",
            "line 2: ValueError: last",
        ),
        ("def build():\n    raise ValueError", "line 2: ValueError"),
    ],
)
def test_what_a_file_raises_is_told_in_one_line(content: str, line: str, tmp_path: Path) -> None:
    assert failed(tmp_path / "model.py", content) == line


def test_what_is_ours_to_say_needs_no_name(tmp_path: Path) -> None:
    assert format_error(ProgramError("it has no loss"), tmp_path / "model.py") == "it has no loss"


@pytest.mark.parametrize(
    ("loss", "shape", "kind"),
    [
        ("sparse_categorical_crossentropy", (10,), np.int64),
        ("categorical_crossentropy", (10,), np.float32),
        ("binary_crossentropy", (1,), np.float32),
        ("mean_squared_error", (3, 4), np.float32),
    ],
)
def test_targets_are_made_up_by_the_loss(loss: str, shape: tuple[int, ...], kind: type) -> None:
    targets = programs._draw_targets(loss, shape, DRAW, 6)
    assert targets.dtype == kind
    assert targets.shape == ((6,) if loss.startswith("sparse") else (6, *shape))
    if loss == "categorical_crossentropy":
        assert (targets.sum(axis=-1) == 1).all()
    if "crossentropy" in loss:
        assert targets.min() >= 0
        assert targets.max() < shape[-1] or targets.max() == 1


def test_lists_of_arrays_become_tuples_and_lists_of_numbers_stay() -> None:
    pair = [np.zeros((2, 3)), np.ones(2)]
    actual = programs._convert_lists((pair, {"y": [0, 1]}))
    assert isinstance(actual[0], tuple)
    assert actual[1]["y"].tolist() == [0, 1]
    assert programs._convert_lists([[0, 1], [1, 0]]).shape == (2, 2)


def test_texts_become_bytes_and_ragged_rows_are_refused() -> None:
    assert programs._convert_array(["a", "bc"]).tolist() == ["a", "bc"]
    assert programs._convert_array(np.array([b"a", b"bc"], object)).dtype.kind == "S"


def test_a_users_file_is_a_workload_that_is_not_counted() -> None:
    name = format_own_name("model.py")
    assert parse_name(name).own
    assert name not in WORKLOADS
    assert find_schedule(name).validation == 0
    assert find_batch_size(name) == 0
    assert find_batch_size("mnist_mlp") == 128


class NoTensorFlow:
    """As much of `tf` as a file needs that has no model."""

    class keras:  # noqa: N801  (its name there)
        Model = dict


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = 1", "the file must define build()"),
        ("build = 1", "the file must define build()"),
        ("def build():\n    return 3", "build() returns int, not a tf.keras model"),
    ],
)
def test_a_file_without_a_model_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(content)
    with pytest.raises(ProgramError) as caught:
        programs.read_program(NoTensorFlow, path, 1)
    assert words in str(caught.value)
