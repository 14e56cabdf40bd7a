"""Synthetic data like the article's: the real shapes, vocabulary and, for text, lengths and a
Zipf distribution of words. They can be learnt, so that losses fall as they do on real data.

This file runs inside each arm's own environment: the standard library and NumPy only.
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
"""From a generator and a number of examples to these examples."""

WORDS = 20_000
BIGRAMS = 1_200_000
"""Distinct bigrams in the 25 000 training reviews of IMDB: an estimate, not a count. They hold
5.9 million bigrams. Their number decides how large the embedding is, and so the cost of a step."""
NIETZSCHE_CHARS = 57
"""Distinct characters of nietzsche.txt in lower case."""
START, FIRST_WORD = 1, 4
BEGIN, PART, FIRST_PIECE = 101, 102, 1000
"""BERT's [CLS] and [SEP] in its vocabulary, and a number from which on there are words, about."""
_TILE = 16
"""Pixels of a side over which the pattern of a picture's class is one colour."""


def images(shape: tuple[int, ...], ink: float) -> Draw:
    """Images of ten classes, 8 bits over 255, `ink` of the pixels set.

    A quarter of the pixels is the class's pattern, the rest is chance: learnt in many steps, so
    that the first losses stay far from zero, where small differences would look large.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        def paint(how_many: int) -> Array:
            inked = generator.random((how_many, *shape), dtype=np.float32) < ink
            return inked * generator.integers(1, 256, inked.shape, dtype=np.uint8)

        patterns, labels = paint(10), generator.integers(0, 10, count)
        signal = generator.random((count, *shape), dtype=np.float32) < 0.25  # noqa: PLR2004
        pixels = np.where(signal, patterns[labels], paint(count))
        return pixels.astype(np.float32) / np.float32(255), np.eye(10, dtype=np.float32)[labels]

    return draw


def pictures(shape: tuple[int, int, int], classes: int) -> Draw:
    """Photographs as nets take them, scaled to -1 … 1, with the number of their class.

    A quarter of each pixel is its class's coarse pattern, the rest is chance.
    """
    side, _, channels = shape
    tiles = -(-side // _TILE)

    def draw(generator: np.random.Generator, count: int) -> Examples:
        patterns = generator.random((classes, tiles, tiles, channels), dtype=np.float32)
        labels = generator.integers(0, classes, count)
        pixels = generator.random((count, *shape), dtype=np.float32)
        pixels *= np.float32(1.5)  # in place: these are the largest data
        pixels -= np.float32(1)
        for index, label in enumerate(labels):
            fine = patterns[label].repeat(_TILE, axis=0).repeat(_TILE, axis=1)
            pixels[index] += np.float32(0.5) * fine[:side, :side]
        return pixels, labels

    return draw


def sentences(words: int, steps: int) -> Draw:
    """Windows of `steps` words of a running text, numbered by how common they are, and the word
    that follows each: a Zipf distribution in which a word often brings its follower."""

    def draw(generator: np.random.Generator, count: int) -> Examples:
        odds = np.cumsum(1.0 / np.arange(1.0, words + 1))
        ranks = np.searchsorted(odds, generator.random(count * steps + 1) * odds[-1])
        stream = np.minimum(ranks, words - 1)
        signal = generator.random(len(stream) - 1) < 0.25  # noqa: PLR2004
        stream[1:][signal] = (stream[:-1][signal] * 7919 + 1) % words
        return stream[:-1].reshape(count, steps), stream[1:].reshape(count, steps)

    return draw


def reviews(maxlen: int, *, bigrams: bool) -> Draw:
    """Reviews as Keras numbers them: 0 pads in front, 1 starts, common words have low numbers.

    Lengths are those of IMDB, about: median 180 words, mean 230, from 11 to 2494. Bigrams stand
    behind the words, and of it all the last `maxlen` are kept, as the article's script does.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        labels = generator.integers(0, 2, count)
        lengths = np.clip(generator.lognormal(math.log(180), 0.7, count), 11, 2494).astype(int)
        rows = np.zeros((count, maxlen), np.int32)
        for row, label, length in zip(rows, labels, lengths, strict=True):
            words = _words(generator, int(length), int(label))
            tokens = np.concatenate([words, _bigrams(words)]) if bigrams else words
            kept = tokens[-maxlen:]
            row[-len(kept) :] = kept
        return rows, labels

    return draw


def _words(generator: np.random.Generator, length: int, label: int) -> Array:
    """Zipf-distributed words; a fifth of them is even or odd as the label is."""
    weights = np.cumsum(1.0 / np.arange(3.7, WORDS - FIRST_WORD + 3.7))
    ranks = np.searchsorted(weights, generator.random(length) * weights[-1])
    words: Array = FIRST_WORD + np.minimum(ranks, WORDS - FIRST_WORD - 1)
    telling = generator.random(length) < 0.2  # noqa: PLR2004  (the docstring's fifth)
    words[telling] += label - words[telling] % 2
    words[0] = START
    return words


def _bigrams(words: Array) -> Array:
    """A number above the words' for each pair of neighbours: the same pair, the same number."""
    first, second = words[:-1].astype(np.int64), words[1:].astype(np.int64)
    numbers: Array = WORDS + 1 + (first * 1_000_003 + second * 7919) % BIGRAMS
    return numbers


def pairs(pieces: int, length: int) -> Draw:
    """Pairs of sentences as BERT takes them: the pieces and, below them, the number of the sentence
    that each is of. All are of the full length, so that nothing is masked.

    A fifth of the pieces is even or odd as the label is.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        odds = np.cumsum(1.0 / np.arange(3.7, pieces - FIRST_PIECE + 3.7))
        ranks = np.searchsorted(odds, generator.random((count, length)) * odds[-1])
        rows = np.minimum(FIRST_PIECE + ranks, pieces - 2)
        labels = generator.integers(0, 2, count)
        telling = generator.random(rows.shape) < 0.2  # noqa: PLR2004  (the docstring's fifth)
        rows += telling * (labels[:, None] - rows % 2)
        half = length // 2
        rows[:, 0], rows[:, half - 1], rows[:, -1] = BEGIN, PART, PART
        sentences = np.broadcast_to(np.arange(length) // half, rows.shape)
        return np.stack([rows, sentences], axis=1), labels

    return draw


def signals(shape: tuple[int, int], classes: int, signal: float) -> Draw:
    """Series of some channels, standardised, with the number of their class: a smooth curve of the
    class makes up the share `signal` of their variance, the rest is chance."""
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


def ratings(users: int, items: int, negatives: int) -> Draw:
    """Who rated what, and for each such pair some that are drawn from all items and count as none.

    Common items have low numbers; users of even and odd numbers rate items of their own kind.
    """

    def draw(generator: np.random.Generator, count: int) -> Examples:
        rated = generator.random(count) < 1 / (1 + negatives)
        whom = generator.integers(0, users, count)
        odds = np.cumsum(1.0 / np.arange(10.0, items + 10.0))
        common = np.searchsorted(odds, generator.random(count) * odds[-1])
        kind = common - common % 2 + whom % 2
        chosen = np.minimum(np.where(rated, kind, generator.integers(0, items, count)), items - 1)
        return np.stack([whom, chosen], axis=1), rated.astype(np.int64)

    return draw


def text(generator: np.random.Generator, count: int) -> Examples:
    """Windows of 40 one-hot characters, 3 apart, and the character that follows each."""
    window, step = 40, 3
    odds = np.cumsum(generator.dirichlet([0.1] * NIETZSCHE_CHARS, NIETZSCHE_CHARS), axis=1)
    draws = generator.random(count * step + window)
    codes = np.zeros(len(draws), np.int64)
    for place in range(1, len(draws)):
        found = int(np.searchsorted(odds[codes[place - 1]], draws[place]))
        codes[place] = min(found, NIETZSCHE_CHARS - 1)
    starts = np.arange(count) * step
    one_hot = np.eye(NIETZSCHE_CHARS, dtype=np.bool_)
    return one_hot[codes[starts[:, None] + np.arange(window)]], one_hot[codes[starts + window]]
