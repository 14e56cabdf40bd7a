from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.examples import at_most

from tfbench.inside.augmentation import SHIFT, augment
from tfbench.inside.synthetic import Array

MANY = 400


SIDE = 32
NUMBERED = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
"""Each pixel says where it is."""


def numbered(count: int) -> Array:
    return np.repeat(np.stack([NUMBERED] * 3, axis=-1)[None], count, axis=0)


def unmirrored(image: Array) -> tuple[Array, bool]:
    """An image of numbers with columns that rise, and whether they fell."""
    mirrored = bool(image[0, SIDE // 2] > image[0, SIDE // 2 + 1])
    return (image[:, ::-1] if mirrored else image), mirrored


def moved(image: Array) -> tuple[int, int]:
    """By how many pixels down and right, read in the middle, which no edge reaches."""
    row, column = divmod(int(image[SIDE // 2, SIDE // 2]), SIDE)
    return SIDE // 2 - row, SIDE // 2 - column


@given(
    shape=st.tuples(*(st.integers(1, 24),) * 2, st.integers(1, 3)),
    count=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
@at_most(50)
def test_the_result_has_the_same_form_and_only_the_images_own_pixels(
    shape: tuple[int, int, int], count: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    images = draw.random((count, *shape), dtype=np.float32)
    array = augment(images, draw)
    assert array.shape == images.shape
    assert array.dtype == images.dtype
    for before, after in zip(images, array, strict=True):
        pixels = {pixel.tobytes() for pixel in before.reshape(-1, shape[2])}
        assert {pixel.tobytes() for pixel in after.reshape(-1, shape[2])} <= pixels


def test_shifts_reach_a_tenth_to_either_side_and_not_further() -> None:
    images = augment(numbered(MANY), np.random.default_rng(1))[..., 0]
    actual = [moved(unmirrored(image)[0]) for image in images]
    most = round(SIDE * SHIFT)
    expected = set(range(-most, most + 1))
    assert {down for down, _ in actual} == {right for _, right in actual} == expected


def test_down_and_right_are_drawn_apart() -> None:
    images = augment(numbered(MANY), np.random.default_rng(2))[..., 0]
    actual = [moved(unmirrored(image)[0]) for image in images]
    assert len(set(actual)) > 40, "of 49 pairs"


def test_the_edge_is_repeated_where_the_image_has_left() -> None:
    for image in augment(numbered(50), np.random.default_rng(3))[..., 0]:
        straight, _ = unmirrored(image)
        down, right = moved(straight)
        wide = np.pad(NUMBERED, SIDE, mode="edge")
        expected = wide[SIDE - down : 2 * SIDE - down, SIDE - right : 2 * SIDE - right]
        assert np.array_equal(straight, expected)


def test_half_of_the_images_are_mirrored() -> None:
    images = augment(numbered(MANY), np.random.default_rng(4))[..., 0]
    share = sum(unmirrored(image)[1] for image in images) / MANY
    assert 0.42 < share < 0.58


def test_the_generator_decides_and_the_images_stay_as_they_are() -> None:
    images = numbered(8)
    kept_array = images.copy()
    first, same, second = (augment(images, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, second)
    assert np.array_equal(images, kept_array)


def test_all_channels_move_together() -> None:
    array = augment(numbered(20), np.random.default_rng(7))
    assert (array == array[..., :1]).all()
