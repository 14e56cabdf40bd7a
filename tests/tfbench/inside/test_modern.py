"""The modern set: parameter counts worked out by hand, and what the synthetic data tell; their
shapes are asked for with those of the six.

That the real Keras models have these counts and learn is asked of TensorFlow in
integration/test_modern_models.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.builders.layer_parameters import dense

from tfbench.inside.modern import MODERN
from tfbench.inside.synthetic import BEGIN, PART
from tfbench.inside.workload import draw_synthetic_data
from tfbench.inside.workloads import SETS, find_workload

NAMES = [workload.name for workload in MODERN]


def gru(inputs: int, units: int) -> int:
    """Three gates, each with a bias of its inputs and one of its state."""
    return 3 * ((inputs + units) * units + 2 * units)


def normalised(filters: int) -> int:
    return 4 * filters


BY_HAND = {
    # Turc et al., table 1: 4.4 million with the pooler; two layers, and four products in each.
    "bert_tiny": (30_522 + 512 + 2) * 128
    + 2 * 128
    + 2 * (4 * dense(128, 128) + dense(128, 512) + dense(512, 128) + 2 * 2 * 128)
    + dense(128, 128)
    + dense(128, 2),
    # Arik et al.: 151 frames become 19, 40 frequencies 20, of 32 channels.
    "crnn_keywords": 20 * 5 * 32
    + 32
    + 2 * gru(20 * 32, 32)
    + 2 * gru(2 * 32, 32)
    + dense(19 * 2 * 32, 64)
    + dense(64, 2),
    "fcn_series": (8 * 128 + 128)
    + (5 * 128 * 256 + 256)
    + (3 * 256 * 128 + 128)
    + normalised(128 + 256 + 128)
    + dense(128, 4),
    "neumf": (6_040 + 3_706) * (64 + 128)
    + dense(256, 256)
    + dense(256, 128)
    + dense(128, 64)
    + dense(64 + 64, 1),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_parameter_count_is_the_one_worked_out_by_hand(name: str) -> None:
    assert find_workload(name).parameters == BY_HAND[name]


@pytest.mark.parametrize(("name", "millions"), [("bert_tiny", 4.4), ("crnn_keywords", 0.23)])
def test_the_papers_say_about_as_many(name: str, millions: float) -> None:
    parameters = find_workload(name).parameters
    assert parameters is not None
    assert math.isclose(parameters / 1e6, millions, rel_tol=0.01)


def test_the_set_is_of_five_kinds() -> None:
    assert SETS["modern"] == (*NAMES, "resnet18:image=64:batch=8")
    assert find_workload(SETS["modern"][-1]).inputs == (8, 64, 64, 3)


@pytest.mark.parametrize(
    ("name", "classes"), [("bert_tiny", 2), ("crnn_keywords", 2), ("fcn_series", 4), ("neumf", 2)]
)
def test_every_class_is_there(name: str, classes: int) -> None:
    assert set(np.unique(draw_synthetic_data(find_workload(name), 3)[1])) == set(range(classes))


def test_pairs_are_in_the_vocabulary_and_in_two_parts() -> None:
    both, labels = draw_synthetic_data(find_workload("bert_tiny"), 3)
    pieces, sentences = both.reshape(-1, 2, 128).swapaxes(0, 1)
    assert pieces.max() < 30_522
    assert (pieces[:, 0] == BEGIN).all()
    assert (pieces[:, [63, 127]] == PART).all()
    words = np.delete(pieces, [0, 63, 127], axis=1)
    assert words.min() >= 1000
    assert (sentences == np.repeat([0, 1], 64)).all()
    share = (words % 2).mean(axis=1)
    assert share[labels.ravel() == 1].mean() > share[labels.ravel() == 0].mean() + 0.1


@pytest.mark.parametrize("name", ["crnn_keywords", "fcn_series"])
def test_signals_are_standardised_and_their_classes_differ(name: str) -> None:
    workload = find_workload(name)
    values, labels = draw_synthetic_data(workload, 3)
    flat, names = values.reshape(-1, math.prod(workload.inputs[1:])), labels.ravel()
    assert abs(float(flat.mean())) < 0.02
    assert abs(float(flat.std()) - 1) < 0.02
    half = len(flat) // 2
    curves = np.stack(
        [flat[:half][names[:half] == class_name].mean(axis=0) for class_name in set(names)]
    )
    actual = (flat[half:] @ curves.T).argmax(axis=1)
    assert (actual == names[half:]).mean() > 0.9, "a matched filter tells them"


def test_a_fifth_of_the_pairs_is_rated_by_users_of_their_kind() -> None:
    pairs, rated = draw_synthetic_data(find_workload("neumf"), 3)
    users, items = pairs.reshape(-1, 2).T
    assert users.min() >= 0
    assert users.max() < 6_040
    assert items.min() >= 0
    assert items.max() < 3_706
    positive = rated.ravel() == 1
    assert abs(positive.mean() - 0.2) < 0.02
    alike = users % 2 == items % 2
    assert alike[positive].mean() > 0.99
    assert abs(alike[~positive].mean() - 0.5) < 0.05
    assert np.median(items[positive]) < np.median(items[~positive]) / 2, "common items are common"
