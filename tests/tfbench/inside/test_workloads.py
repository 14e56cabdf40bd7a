"""The synthetic data's shapes and bytes, the initial parameters, and parameter counts worked out by
hand.

That the real Keras models have these counts is asked of TensorFlow in integration/test_worker.py.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from tests.builders import report_comparisons
from tests.builders.layer_parameters import convolution, dense, lstm

from tfbench.inside.parameters import draw_initial_parameters, hash_arrays
from tfbench.inside.phases import FIT, INFER, TRAIN
from tfbench.inside.synthetic import BIGRAMS, NIETZSCHE_CHARS, WORDS
from tfbench.inside.workload import BATCHES, draw_synthetic_data
from tfbench.inside.workload_name import format_own_name, parse_name
from tfbench.inside.workloads import (
    SETS,
    WORKLOADS,
    find_batch_size,
    find_workload,
    format_label,
    list_fit_workloads,
    list_request_workloads,
)
from tfcore.comparisons.comparison import ComparedCell

BY_HAND = {
    "mnist_mlp": dense(784, 512) + dense(512, 512) + dense(512, 10),
    # 28 → 26 → 24, pooled to 12
    "mnist_cnn": convolution(3, 1, 32)
    + convolution(3, 32, 64)
    + dense(12 * 12 * 64, 128)
    + dense(128, 10),
    # 32 → 32 → 30, pooled to 15 → 15 → 13, pooled to 6
    "cifar10_cnn": convolution(3, 3, 32)
    + convolution(3, 32, 32)
    + convolution(3, 32, 64)
    + convolution(3, 64, 64)
    + dense(6 * 6 * 64, 512)
    + dense(512, 10),
    "imdb_fasttext": (20_001 + BIGRAMS) * 50 + dense(50, 1),
    "imdb_bilstm": 20_000 * 128 + 2 * lstm(128, 64) + dense(128, 1),
    "lstm_text": lstm(57, 128) + dense(128, 57),
}


def test_there_are_the_six_workloads_of_the_article() -> None:
    assert list(WORKLOADS) == list(BY_HAND)


@pytest.mark.parametrize("name", BY_HAND)
def test_the_recorded_parameter_count_is_the_one_worked_out_by_hand(name: str) -> None:
    assert WORKLOADS[name].parameters == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("mnist_mlp", 128),
        ("mnist_cnn", 128),
        ("cifar10_cnn", 32),
        ("imdb_fasttext", 32),
        ("imdb_bilstm", 32),
        ("lstm_text", 128),
    ],
)
def test_batch_sizes_are_the_articles(name: str, batch: int) -> None:
    assert WORKLOADS[name].batch == batch
    assert WORKLOADS[name].inputs[0] == WORKLOADS[name].targets[0] == batch


# The article's data: training and validation examples, and how often it went through them. Of
# nietzsche.txt it took 200 285 windows, one at every third of its 600 893 characters.
DATA = {
    "mnist_mlp": (60_000, 10_000, 20),
    "mnist_cnn": (60_000, 10_000, 12),
    "cifar10_cnn": (50_000, 10_000, 20),
    "imdb_fasttext": (25_000, 25_000, 5),
    "imdb_bilstm": (25_000, 25_000, 4),
    "lstm_text": (math.ceil((600_893 - 40) / 3), 0, 10),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_run_goes_through_the_articles_data_as_often_as_there(name: str) -> None:
    training, validation, epochs = DATA[name]
    schedule, batch = WORKLOADS[name].schedule, WORKLOADS[name].batch
    assert schedule.epochs == epochs
    assert schedule.validation == math.ceil(validation / batch)
    # CIFAR-10's script asked its generator for whole batches only.
    whole = training // batch if schedule.augmented else math.ceil(training / batch)
    assert schedule.steps == whole


def test_only_cifar_10_was_augmented() -> None:
    assert [name for name, workload in WORKLOADS.items() if workload.schedule.augmented] == [
        "cifar10_cnn"
    ]


@pytest.mark.parametrize("name", [*WORKLOADS, *SETS["modern"]])
def test_a_twin_has_the_stated_shapes_and_dtypes_and_its_seed_decides_the_bytes(name: str) -> None:
    workload = find_workload(name)
    inputs, targets = draw_synthetic_data(workload, seed=7)
    assert inputs.shape == (BATCHES, *workload.inputs)
    assert targets.shape == (BATCHES, *workload.targets)
    assert (str(inputs.dtype), str(targets.dtype)) == (
        workload.inputs_dtype,
        workload.targets_dtype,
    )
    assert hash_arrays([inputs, targets]) == hash_arrays(draw_synthetic_data(workload, 7))
    assert hash_arrays([inputs, targets]) != hash_arrays(draw_synthetic_data(workload, 8))


@pytest.mark.parametrize("name", ["mnist_mlp", "mnist_cnn", "cifar10_cnn"])
def test_images_are_eight_bits_over_255_and_labels_one_hot(name: str) -> None:
    pixels, labels = draw_synthetic_data(WORKLOADS[name], 3)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert np.allclose(pixels * 255, np.round(pixels * 255), atol=1e-4)
    assert (labels.sum(axis=-1) == 1).all()
    assert (labels.reshape(-1, 10).sum(axis=0) > 0).all()


def test_mnist_is_mostly_background_and_cifar_is_not() -> None:
    def inked(name: str) -> float:
        return float((draw_synthetic_data(WORKLOADS[name], 3)[0] > 0).mean())

    assert 0.15 < inked("mnist_mlp") < 0.25
    assert inked("cifar10_cnn") > 0.9


def test_reviews_use_the_words_and_pad_in_front() -> None:
    tokens = draw_synthetic_data(WORKLOADS["imdb_bilstm"], 3)[0].reshape(-1, 100)
    assert tokens.min() == 0
    assert tokens.max() < WORDS
    padded = tokens == 0
    assert (np.diff(padded.astype(int), axis=1) <= 0).all(), "no padding behind a word"
    counts = np.bincount(tokens[tokens > 3])
    assert counts[4:40].sum() > counts[4000:4036].sum() * 10, "common words are common"


def test_bigrams_stand_above_the_words_and_within_the_embedding() -> None:
    tokens = draw_synthetic_data(WORKLOADS["imdb_fasttext"], 3)[0].reshape(-1, 400)
    assert WORDS not in tokens
    assert WORDS < tokens.max() < WORDS + 1 + BIGRAMS
    long = tokens[(tokens > 0).all(axis=1)]
    assert (long[:, -1] > WORDS).all(), "bigrams stand behind the words"
    assert ((tokens > WORDS).sum(axis=1) > 0).all()


def test_reviews_are_as_long_as_imdbs() -> None:
    tokens = draw_synthetic_data(WORKLOADS["imdb_fasttext"], 3)[0].reshape(-1, 400)
    whole = (tokens > 0).sum(axis=1)
    assert 0.3 < (whole == 400).mean() < 0.6, "half of IMDB's reviews have over 178 words"


def test_text_windows_overlap_as_they_do_in_the_script() -> None:
    windows, following = draw_synthetic_data(WORKLOADS["lstm_text"], 3)
    codes = windows.reshape(-1, 40, NIETZSCHE_CHARS).argmax(axis=-1)
    nexts = following.reshape(-1, NIETZSCHE_CHARS).argmax(axis=-1)
    assert (codes[1:, :37] == codes[:-1, 3:]).all()
    assert (codes[1:, 37] == nexts[:-1]).all()
    assert (windows.sum(axis=-1) == 1).all()


def test_initial_parameters_follow_keras_rules() -> None:
    embedding, kernel, bias, recurrent, forget = draw_initial_parameters(
        [
            ("embedding/embeddings:0", (500, 20)),
            ("conv2d/kernel:0", (3, 3, 32, 64)),
            ("conv2d/bias:0", (64,)),
            ("bidirectional/forward_lstm/lstm_cell_1/recurrent_kernel:0", (16, 64)),
            ("bidirectional/forward_lstm/lstm_cell_1/bias:0", (64,)),
        ],
        seed=5,
    )
    assert np.abs(embedding).max() <= 0.05
    limit = np.sqrt(6 / (9 * (32 + 64)))
    assert 0.99 * limit < np.abs(kernel).max() <= limit
    assert not bias.any()
    assert np.allclose(recurrent @ recurrent.T, np.eye(16), atol=1e-4)
    assert forget.tolist() == [0.0] * 16 + [1.0] * 16 + [0.0] * 32
    assert {array.dtype for array in (embedding, kernel, bias, recurrent, forget)} == {
        np.dtype(np.float32)
    }


def test_weights_of_one_shape_differ_and_repeat_with_the_seed() -> None:
    named = [("a/kernel:0", (8, 8)), ("b/kernel:0", (8, 8))]
    first, second = draw_initial_parameters(named, 1)
    assert not np.array_equal(first, second)
    assert hash_arrays([first, second]) == hash_arrays(draw_initial_parameters(named, 1))
    assert hash_arrays([first, second]) != hash_arrays(draw_initial_parameters(named, 2))


def test_a_weight_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="peephole"):
        draw_initial_parameters([("batch_normalization/peephole:0", (8,))], seed=1)


def test_digest_sees_shape_and_dtype() -> None:
    flat = np.zeros(4, np.float32)
    assert hash_arrays([flat]) != hash_arrays([flat.reshape(2, 2)])
    assert hash_arrays([flat]) != hash_arrays([flat.view(np.int32)])


# --- requests -------------------------------------------------------------------------------------


def test_requests_are_of_one_of_32_and_of_32_from_as_many_clients_as_vcpus() -> None:
    assert list_request_workloads("mnist_cnn", 4) == (
        "mnist_cnn:batch=1:clients=1",
        "mnist_cnn:batch=32:clients=1",
        "mnist_cnn:batch=32:clients=4",
    )
    assert len(list_request_workloads("mnist_cnn", 1)) == 2, "one client is as many as vCPUs"


@pytest.mark.parametrize(
    "name",
    ["mnist_cnn", "resnet50:image=64:batch=8", format_own_name("model.py")],
)
def test_what_requests_are_stands_in_their_names(name: str) -> None:
    assert (parse_name(name).clients, parse_name(name).phase) == (0, TRAIN)
    assert not of(name).is_inference
    for word, batch, clients in zip(
        list_request_workloads(name, 2), (1, 32, 32), (1, 1, 2), strict=True
    ):
        assert (find_batch_size(word), parse_name(word).clients, parse_name(word).phase) == (
            batch,
            clients,
            INFER,
        )
        assert of(word).is_inference
        if name == "mnist_cnn":
            assert find_workload(word).batch == batch


def of(name: str) -> ComparedCell:
    """Its cell of a comparison, which tells requests by the name as well."""
    return dataclasses.replace(report_comparisons.cell("mnist_mlp", 2, {}), workload=name)


def test_requests_are_shown_by_their_examples_and_clients() -> None:
    assert [
        format_label(request_workload)
        for request_workload in list_request_workloads("resnet50:image=64:batch=8", 2)
    ] == [*("resnet50:image=64 1", "resnet50:image=64 32", "resnet50:image=64 32x2")]
    assert format_label("resnet50:image=64:batch=8") == "resnet50:image=64:batch=8"


def test_epochs_of_fit_stand_beside_training_steps() -> None:
    steps, epochs = list_fit_workloads("mnist_mlp:batch=64")
    assert (parse_name(steps).phase, parse_name(epochs).phase) == (TRAIN, FIT)
    assert format_label(epochs) == "mnist_mlp:batch=64 fit"
    assert find_workload(epochs).batch == 64
    assert parse_name(list_fit_workloads(format_own_name("model.py"))[1]).phase == FIT
