"""Synthetic data like the article's, with the real shapes and vocabulary.

Texts have the real lengths and a Zipf distribution of words. The data can be learnt, so that losses
fall as on real data.

This file runs inside each arm's environment: it imports only the standard library and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Examples: TypeAlias = tuple[Array, Array]
"""Inputs and targets, one row per example."""
Draw: TypeAlias = Callable[[np.random.Generator, int], Examples]
"""A function of a random generator and a number of examples that returns the examples."""

WORDS = 20_000
BIGRAMS = 1_200_000
"""Distinct bigrams among the 5.9 million bigrams of IMDB's 25 000 training reviews: an estimate,
not a count. It determines the size of the embedding, and so the time of a step."""
NIETZSCHE_CHARS = 57
"""Distinct characters in the lower-case nietzsche.txt."""
START, FIRST_WORD = 1, 4
BEGIN, PART, FIRST_PIECE = 101, 102, 1000
"""Numbers of BERT's [CLS] and [SEP], and about the first number of a word."""
_TILE = 16
"""Height and width, in pixels, of a tile of one colour in a class's pattern."""


def create_image_sampler(shape: tuple[int, ...], ink: float) -> Draw:
    """Return a function that draws images of ten classes, 8-bit values over 255.

    `ink` is the share of nonzero pixels. A quarter of the pixels has the class's pattern, the rest
    is random. Learning it takes many steps, so that the first losses stay far from zero, where
    small differences would look large.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        def paint(how_many: int) -> Array:
            mask = generator.random((how_many, *shape), dtype=np.float32) < ink
            return mask * generator.integers(1, 256, mask.shape, dtype=np.uint8)

        patterns, labels = paint(10), generator.integers(0, 10, count)
        signal = generator.random((count, *shape), dtype=np.float32) < 0.25  # noqa: PLR2004
        pixels = np.where(signal, patterns[labels], paint(count))
        return pixels.astype(np.float32) / np.float32(255), np.eye(10, dtype=np.float32)[labels]

    return draw


def create_photo_sampler(shape: tuple[int, int, int], classes: int) -> Draw:
    """Return a function that draws photographs, scaled to -1 … 1, and their class numbers.

    A quarter of each pixel's value is its class's coarse pattern, the rest is random.
    """
    side, _, channels = shape
    tiles = -(-side // _TILE)

    def draw(generator: np.random.Generator, count: int) -> Examples:
        patterns = generator.random((classes, tiles, tiles, channels), dtype=np.float32)
        labels = generator.integers(0, classes, count)
        pixels = generator.random((count, *shape), dtype=np.float32)
        pixels *= np.float32(1.5)  # (in place: these are the largest data)
        pixels -= np.float32(1)
        for index, label in enumerate(labels):
            fine = patterns[label].repeat(_TILE, axis=0).repeat(_TILE, axis=1)
            pixels[index] += np.float32(0.5) * fine[:side, :side]
        return pixels, labels

    return draw


def create_sentence_sampler(words: int, steps: int) -> Draw:
    """Return a function that draws windows of `steps` words, and each word's successor.

    Words of the running text are numbered by frequency; they have a Zipf distribution in which a
    word often determines its successor.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        odds = np.cumsum(1.0 / np.arange(1.0, words + 1))
        ranks = np.searchsorted(odds, generator.random(count * steps + 1) * odds[-1])
        stream = np.minimum(ranks, words - 1)
        signal = generator.random(len(stream) - 1) < 0.25  # noqa: PLR2004
        stream[1:][signal] = (stream[:-1][signal] * 7919 + 1) % words
        return stream[:-1].reshape(count, steps), stream[1:].reshape(count, steps)

    return draw


def create_review_sampler(maxlen: int, *, bigrams: bool) -> Draw:
    """Return a function that draws reviews as Keras numbers them.

    0 is padding in front, 1 is the start, common words have low numbers. Lengths are approximately
    those of IMDB: median 180 words, mean 230, from 11 to 2494. Bigrams follow the words, and only
    the last `maxlen` tokens are used, as in the article's script.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        labels = generator.integers(0, 2, count)
        lengths = np.clip(generator.lognormal(math.log(180), 0.7, count), 11, 2494).astype(int)
        rows = np.zeros((count, maxlen), np.int32)
        for row, label, length in zip(rows, labels, lengths, strict=True):
            words = _draw_words(generator, int(length), int(label))
            tokens = np.concatenate([words, _number_bigrams(words)]) if bigrams else words
            window = tokens[-maxlen:]
            row[-len(window) :] = window
        return rows, labels

    return draw


def _draw_words(generator: np.random.Generator, length: int, label: int) -> Array:
    """Draw Zipf-distributed words; a fifth of them has the parity of the label."""
    weights = np.cumsum(1.0 / np.arange(3.7, WORDS - FIRST_WORD + 3.7))
    ranks = np.searchsorted(weights, generator.random(length) * weights[-1])
    words: Array = FIRST_WORD + np.minimum(ranks, WORDS - FIRST_WORD - 1)
    informative = generator.random(length) < 0.2  # noqa: PLR2004  (the docstring's fifth)
    words[informative] += label - words[informative] % 2
    words[0] = START
    return words


def _number_bigrams(words: Array) -> Array:
    """Return a number for each pair of neighbours, above the numbers of words.

    Equal pairs have equal numbers.
    """
    first, second = words[:-1].astype(np.int64), words[1:].astype(np.int64)
    numbers: Array = WORDS + 1 + (first * 1_000_003 + second * 7919) % BIGRAMS
    return numbers


def create_pair_sampler(pieces: int, length: int) -> Draw:
    """Return a function that draws pairs of sentences as BERT takes them.

    Each example has two rows: the pieces, and the number of each piece's sentence. All have the
    full length, so that nothing is masked. A fifth of the pieces has the parity of the label.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        odds = np.cumsum(1.0 / np.arange(3.7, pieces - FIRST_PIECE + 3.7))
        ranks = np.searchsorted(odds, generator.random((count, length)) * odds[-1])
        rows = np.minimum(FIRST_PIECE + ranks, pieces - 2)
        labels = generator.integers(0, 2, count)
        informative = generator.random(rows.shape) < 0.2  # noqa: PLR2004  (the docstring's fifth)
        rows += informative * (labels[:, None] - rows % 2)
        half = length // 2
        rows[:, 0], rows[:, half - 1], rows[:, -1] = BEGIN, PART, PART
        sentences = np.broadcast_to(np.arange(length) // half, rows.shape)
        return np.stack([rows, sentences], axis=1), labels

    return draw


def create_series_sampler(shape: tuple[int, int], classes: int, signal: float) -> Draw:
    """Return a function that draws standardized series and their class numbers.

    A smooth curve of the class has the share `signal` of the variance, the rest is random.
    """
    steps, channels = shape

    def draw(generator: np.random.Generator, count: int) -> Examples:
        rates = generator.integers(1, 9, (classes, 1, channels))
        starts = generator.random((classes, 1, channels))
        turns = rates * np.arange(steps)[:, None] / steps + starts
        curves = (math.sqrt(2 * signal) * np.sin(2 * math.pi * turns)).astype(np.float32)
        labels = generator.integers(0, classes, count)
        values = generator.standard_normal((count, *shape), dtype=np.float32)
        values *= np.float32(math.sqrt(1 - signal))
        return values + curves[labels], labels

    return draw


def create_rating_sampler(users: int, items: int, negatives: int) -> Draw:
    """Return a function that draws pairs of a user and an item, and whether the user rated it.

    For each rated pair there are `negatives` unrated ones, whose items are drawn from all items.
    Common items have low numbers. Users with even numbers rate items with even numbers, users with
    odd numbers items with odd ones.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        rated = generator.random(count) < 1 / (1 + negatives)
        raters = generator.integers(0, users, count)
        odds = np.cumsum(1.0 / np.arange(10.0, items + 10.0))
        common = np.searchsorted(odds, generator.random(count) * odds[-1])
        kind = common - common % 2 + raters % 2
        chosen = np.minimum(np.where(rated, kind, generator.integers(0, items, count)), items - 1)
        return np.stack([raters, chosen], axis=1), rated.astype(np.int64)

    return draw


def draw_text(generator: np.random.Generator, count: int) -> Examples:
    """Draw windows of 40 one-hot characters, 3 apart, and the character that follows each."""
    window, step = 40, 3
    odds = np.cumsum(generator.dirichlet([0.1] * NIETZSCHE_CHARS, NIETZSCHE_CHARS), axis=1)
    draws = generator.random(count * step + window)
    codes = np.zeros(len(draws), np.int64)
    for position in range(1, len(draws)):
        code = int(np.searchsorted(odds[codes[position - 1]], draws[position]))
        codes[position] = min(code, NIETZSCHE_CHARS - 1)
    starts = np.arange(count) * step
    one_hot = np.eye(NIETZSCHE_CHARS, dtype=np.bool_)
    return one_hot[codes[starts[:, None] + np.arange(window)]], one_hot[codes[starts + window]]
