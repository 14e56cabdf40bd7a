"""All workloads: their names with sizes, parameter counts worked out by hand, their real data.

That the real Keras models have these counts is asked of TensorFlow in
integration/test_experiments.py.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tests.builders.layer_parameters import convolution, dense, lstm

from tfbench.inside import iris
from tfbench.inside.language import SIZES
from tfbench.inside.nets import FAMILIES
from tfbench.inside.workload import BATCHES, draw_synthetic_data
from tfbench.inside.workloads import (
    NAMES,
    SETS,
    WORKLOADS,
    UnknownWorkloadError,
    find_workload,
    set_sizes,
)


def language(units: int) -> int:
    return 10_000 * units + 2 * lstm(units, units) + dense(units, 10_000)


def residual(channels: int, filters: int) -> int:
    """He et al., section 3: convolutions without bias, four numbers of each channel for what
    normalises it, and a projection where the width changes."""
    both = 9 * (channels + filters) * filters + 2 * 4 * filters
    return both + (channels * filters + 4 * filters if channels != filters else 0)


def inception(channels: int, *widths: int) -> int:
    single_number, three_reduced, three, five_reduced, five, projected = widths
    return (
        convolution(1, channels, single_number)
        + convolution(1, channels, three_reduced)
        + convolution(3, three_reduced, three)
        + convolution(1, channels, five_reduced)
        + convolution(5, five_reduced, five)
        + convolution(1, channels, projected)
    )


WIDTHS = (64, 64, 64, 128, 128, 256, 256, 512, 512)
BY_HAND = {
    # Krizhevsky et al.: 60 million parameters. Two groups see half of the channels each.
    "alexnet": convolution(11, 3, 96)
    + 2 * convolution(5, 48, 128)
    + convolution(3, 256, 384)
    + 2 * convolution(3, 192, 192)
    + 2 * convolution(3, 192, 128)
    + dense(6 * 6 * 256, 4096)
    + dense(4096, 4096)
    + dense(4096, 1000),
    # Szegedy et al., table 1, row by row.
    "googlenet": convolution(7, 3, 64)
    + convolution(1, 64, 64)
    + convolution(3, 64, 192)
    + inception(192, 64, 96, 128, 16, 32, 32)
    + inception(256, 128, 128, 192, 32, 96, 64)
    + inception(480, 192, 96, 208, 16, 48, 64)
    + inception(512, 160, 112, 224, 24, 64, 64)
    + inception(512, 128, 128, 256, 24, 64, 64)
    + inception(512, 112, 144, 288, 32, 64, 64)
    + inception(528, 256, 160, 320, 32, 128, 128)
    + inception(832, 256, 160, 320, 32, 128, 128)
    + inception(832, 384, 192, 384, 48, 128, 128)
    + dense(1024, 1000),
    "resnet18": 7 * 7 * 3 * 64
    + 4 * 64
    + sum(residual(*widths) for widths in itertools.pairwise(WIDTHS))
    + dense(512, 1000),
    "ptb_lstm_small": language(200),
    "ptb_lstm_medium": language(650),
    "ptb_lstm_large": language(1500),
    "iris_mlp": dense(4, 32) + dense(32, 3),
    "digits_cnn": convolution(3, 1, 32)
    + convolution(3, 32, 64)
    + dense(2 * 2 * 64, 64)
    + dense(64, 10),
}
# As keras.io/api/applications has them, in millions.
PUBLISHED = {"resnet50": 25.6, "resnet152": 60.4, "inception_v3": 23.9, "vgg16": 138.4}
MODERN = [name for name in SETS["modern"] if ":" not in name]  # see test_modern.py


@pytest.mark.parametrize("name", BY_HAND)
def test_the_recorded_parameter_count_is_the_one_worked_out_by_hand(name: str) -> None:
    assert find_workload(name).parameters == BY_HAND[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_recorded_parameter_count_is_the_published_one(name: str) -> None:
    parameters = find_workload(name).parameters
    assert parameters is not None
    assert round(parameters / 1e6, 1) == PUBLISHED[name]


def test_the_papers_of_the_language_models_say_how_large_they_are() -> None:
    # Zaremba et al., section 4.1: 200, 650 and 1500 units, 20 and 35 steps, 66 million weights.
    assert [(size.units, size.steps) for size in SIZES] == [(200, 20), (650, 35), (1500, 35)]
    assert math.isclose(SIZES[-1].parameters, 66e6, rel_tol=0.01)


def test_every_workload_has_one_name() -> None:
    assert set(NAMES) == {*WORKLOADS, *MODERN, *BY_HAND, *PUBLISHED}
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_another_size_has_that_size(name: str) -> None:
    workload = find_workload(f"{name}:batch=3")
    assert workload.batch == workload.inputs[0] == workload.targets[0] == 3
    assert workload.inputs[1:] == find_workload(name).inputs[1:]
    assert workload.schedule.epochs == find_workload(name).schedule.epochs
    if name not in {"iris_mlp", "digits_cnn"}:  # (whose last batch is a small part)
        examples = find_workload(name).schedule.steps * find_workload(name).batch
        assert math.isclose(workload.schedule.steps * 3, examples, rel_tol=0.01)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_images_have_the_size_that_is_asked(family: object) -> None:
    name = getattr(family, "name", "")
    workload = find_workload(f"{name}:image=96:batch=2")
    assert workload.inputs == (2, 96, 96, 3)
    assert workload.image == 96
    assert workload.parameters is None, "nobody has published it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet", "unknown workload resnet"),
        ("own:model.py", "unknown workload own:model.py"),
        ("resnet50:images=64", "unknown size 'images=64'; resnet50 takes"),
        ("mnist_mlp:image=64", "mnist_mlp"),
        ("resnet50:batch=0", "batch"),
        ("resnet50:batch=²", "batch"),
        ("resnet50:batch=", "batch"),
        ("resnet50:batch=8:batch=9", "unknown size"),
        ("resnet50:image=16", "32 pixels"),
        ("inception_v3:image=74", "75 pixels"),
        ("iris_mlp:batch=106", "105"),
    ],
)
def test_what_there_is_not_is_said(text: str, message: str) -> None:
    with pytest.raises(UnknownWorkloadError, match=re.escape(message)):
        find_workload(text)


def test_sizes_behind_a_name_are_replaced_and_added() -> None:
    assert set_sizes("resnet50", batch=8) == "resnet50:batch=8"
    assert set_sizes("resnet50:image=64:batch=8", batch=16) == "resnet50:batch=16:image=64"
    assert find_workload(set_sizes("resnet50:image=64", batch=4)).inputs == (4, 64, 64, 3)


@pytest.mark.parametrize(
    "name", ["resnet50:image=64:batch=4", "ptb_lstm_small", "iris_mlp", "alexnet:image=67:batch=2"]
)
def test_a_twin_has_the_stated_shapes_and_dtypes(name: str) -> None:
    workload = find_workload(name)
    inputs, targets = draw_synthetic_data(workload, seed=7)
    assert inputs.shape == (workload.batches, *workload.inputs)
    assert targets.shape == (workload.batches, *workload.targets)
    assert (str(inputs.dtype), str(targets.dtype)) == (
        workload.inputs_dtype,
        workload.targets_dtype,
    )
    again = draw_synthetic_data(workload, seed=7)
    assert np.array_equal(again[0], inputs)
    assert np.array_equal(again[1], targets)


def test_large_images_have_fewer_distinct_batches() -> None:
    assert find_workload("mnist_mlp").batches == BATCHES
    assert find_workload("resnet50:batch=256").batches == 1
    assert 1 < find_workload("resnet50:batch=32").batches < BATCHES


def test_pictures_are_scaled_and_their_classes_differ() -> None:
    pixels, labels = draw_synthetic_data(find_workload("resnet50:image=64:batch=32"), 3)
    assert pixels.min() >= -1
    assert pixels.max() <= 1
    assert labels.min() >= 0
    assert labels.max() < 1000
    flat, names = pixels.reshape(-1, 64 * 64 * 3), labels.ravel()
    pairs = [(a, b) for a in range(200) for b in range(a) if names[a] == names[b]]
    assert pairs, "of a thousand pictures two show the same"
    alike = np.mean([np.corrcoef(flat[a], flat[b])[0, 1] for a, b in pairs[:20]])
    other_values = np.mean([np.corrcoef(flat[a], flat[a + 1])[0, 1] for a in range(20)])
    assert alike > other_values + 0.05


def test_the_next_word_of_a_window_is_its_target() -> None:
    words, following = draw_synthetic_data(find_workload("ptb_lstm_small"), 3)
    assert np.array_equal(words[..., 1:], following[..., :-1])
    assert words.min() >= 0
    assert words.max() < 10_000


# --- the real irises ------------------------------------------------------------------------------


def test_the_irises_are_those_of_scikit_learn() -> None:
    measures, species = iris.load_flowers()
    real = load_iris()
    assert np.allclose(measures, real.data, atol=1e-6)
    assert np.array_equal(species, real.target)


def test_they_are_split_once_and_no_flower_is_in_both_parts() -> None:
    (trained, targets), (tested, answers) = iris.split_flowers()
    assert (len(trained), len(tested)) == (iris.TRAINING, iris.TESTING) == (105, 45)
    assert targets.sum(axis=0).min() > 20
    assert answers.sum(axis=0).min() > 5
    both = np.concatenate([trained, tested])
    real = iris.load_flowers()[0]
    assert np.array_equal(np.sort(both, axis=0), np.sort(real, axis=0))
