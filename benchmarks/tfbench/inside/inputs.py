"""Read examples from files for training, inference and preprocessing.

The examples are generated, or a user's folder of images with a subfolder per class. One reader
serves every source, so that sources differ only in where the bytes come from: the page cache, the
disk, or a simulated slow disk.

This file runs inside each arm's environment: it imports only the standard library, NumPy and
TensorFlow.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tfbench.inside.synthetic import Array
from tfbench.inside.workload import Workload

TensorFlow: TypeAlias = Any
Dataset: TypeAlias = Any

RECORDS, RAW, ROWS, MARK = "examples.tfrecord", "raw", "examples.txt", "inputs.json"
BLOCK = 1 << 20
"""Bytes per read."""
PHOTOGRAPH = (375, 500)
"""Height and width of a typical photograph of ImageNet, which has about 110 kB."""
_QUALITY = 92
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_FRAME = struct.Struct("<QI")  # a record's length and its checksum; another follows the data


class InputError(Exception):
    """An error in input data, described in one line."""


@dataclass(kw_only=True, slots=True)
class Reader:
    """A reader of files in blocks, which counts what it reads.

    `mb_s` and `iops` are the speed of the simulated disk, 0 for no limit. A `cold` reader drops a
    file from the page cache before it reads the file.
    """

    mb_s: float = 0.0
    iops: float = 0.0
    cold: bool = False
    read_bytes: int = 0
    reads: int = 0
    cached: int = 0
    """Bytes in the page cache although the reader is cold."""
    read_s: float = 0.0
    """Seconds in which the reader read, or waited like the simulated disk."""
    _free_at: float = 0.0

    def read_blocks(self, path: Path) -> Iterator[bytes]:
        handle = os.open(path, os.O_RDONLY)
        try:
            if self.cold:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                self.cached += count_cached_bytes(handle)
            while block := self._read_block(handle):
                yield block
        finally:
            os.close(handle)

    def read_all(self, path: Path) -> bytes:
        return b"".join(self.read_blocks(path))

    def read_records(self, path: Path) -> Iterator[bytes]:
        """Yield the records of a TFRecord file.

        Raises InputError if the file is cut off.
        """
        buffer = b""
        for block in self.read_blocks(path):
            buffer += block
            offset = 0
            while len(buffer) - offset >= _FRAME.size:
                length, _ = _FRAME.unpack_from(buffer, offset)
                end = offset + _FRAME.size + length + 4
                if end > len(buffer):
                    break
                yield buffer[offset + _FRAME.size : end - 4]
                offset = end
            buffer = buffer[offset:]
        if buffer:
            raise InputError(f"{path.name} is truncated: it ends in the middle of a record")

    def _read_block(self, handle: int) -> bytes:
        began = time.perf_counter()
        block = os.read(handle, BLOCK)
        if not block:
            return block
        self.read_bytes += len(block)
        self.reads += 1
        self._wait(len(block))
        self.read_s += time.perf_counter() - began
        return block

    def _wait(self, count: int) -> None:
        """Wait as long as a disk of the simulated speed takes to read `count` bytes."""
        cost = max(
            count / (self.mb_s * 1e6) if self.mb_s else 0.0, 1 / self.iops if self.iops else 0.0
        )
        now = time.perf_counter()
        self._free_at = max(self._free_at, now) + cost if cost else now
        if self._free_at > now:
            time.sleep(self._free_at - now)


def count_cached_bytes(handle: int) -> int:
    """Return how many bytes of a file are in the page cache, see mincore(2).

    Returns 0 where the kernel does not report it.
    """
    size = os.fstat(handle).st_size
    if size == 0:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    resident = (ctypes.c_ubyte * pages)()
    with mmap.mmap(handle, size, flags=mmap.MAP_PRIVATE) as mapped:
        start = (ctypes.c_char * size).from_buffer(mapped)
        failed = libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), resident)
        del start  # (or the map could not be closed)
    return 0 if failed else min(size, sum(page & 1 for page in resident) * mmap.PAGESIZE)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A folder of `count` examples.

    `classes` are the folders of a user's images, one per class.
    """

    folder: Path
    count: int
    own: bool
    classes: tuple[str, ...] = ()

    def list_raw_files(self) -> list[tuple[Path, int]]:
        """Return the raw files, each with the number of its class."""
        if not self.own:
            return [
                (path, int(path.parent.name)) for path in sorted(_find_images(self.folder / RAW))
            ]
        numbers = {name: number for number, name in enumerate(self.classes)}
        return [
            (path, numbers[_get_class(self.folder, path)])
            for path in sorted(_find_images(self.folder))
        ]


def find_source(folder: Path, workload: Workload) -> Source:
    """Return the source in a folder: generated examples, or a user's images.

    Raises InputError if the folder has no usable examples, or less than a batch.
    """
    mark = folder / MARK
    classes: tuple[str, ...] = ()
    is_own = not mark.is_file()
    if not is_own:
        count = int(json.loads(mark.read_text(encoding="utf-8"))["count"])
    elif workload.image is None:
        raise InputError(f"{workload.name} takes no images, so it cannot use a folder of images")
    else:
        paths = sorted(_find_images(folder))
        count = len(paths)
        classes = tuple(sorted({_get_class(folder, path) for path in paths}))
    if count < workload.batch:
        raise InputError(f"{folder} has fewer examples ({count}) than a batch ({workload.batch})")
    return Source(folder=folder, count=count, own=is_own, classes=classes)


def _find_images(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


def _get_class(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def generate_examples(
    tf: TensorFlow, workload: Workload, folder: Path, count: int, seed: int
) -> None:
    """Write `count` examples, unless the folder has them already.

    They are JPEGs of the size of photographs, in files below RAW and in a TFRecord. For a workload
    that takes no images they are lines of text in RAW and arrays in the TFRecord.
    """
    facts = {"count": count, "seed": seed, "inputs": list(workload.inputs[1:])}
    mark = folder / MARK
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == facts:
        return
    (folder / RAW).mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(folder / RECORDS)) as writer:
        write = _write_photographs if workload.image else _write_rows
        write(tf, workload, folder / RAW, count, draw, writer.write)
    # Write to disk before a cold reader runs: only clean pages can be dropped from the cache.
    os.sync()
    mark.write_text(json.dumps(facts), encoding="utf-8")


def _write_photographs(
    tf: TensorFlow,
    workload: Workload,
    raw: Path,
    count: int,
    draw: np.random.Generator,
    write: Callable[[bytes], None],
) -> None:
    classes = min(10, workload.targets[1] if len(workload.targets) > 1 else 10)
    height, width = PHOTOGRAPH
    for number in range(count):
        label = number % classes
        picture = _draw_photograph(draw, height, width, label)[..., : workload.inputs[-1]]
        encoded = tf.io.encode_jpeg(picture, quality=_QUALITY).numpy()
        path = raw / str(label) / f"{number:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded)
        write(_serialise_example(tf, encoded, np.int64(label)))


def _draw_photograph(draw: np.random.Generator, height: int, width: int, label: int) -> Array:
    """Draw patches of colour under fine grain, which compress about as well as photographs."""
    tile = 25
    patches = draw.integers(0, 200, (height // tile, width // tile, 3))
    patches[..., label % 3] += 5 * label
    grain = draw.integers(0, 25, (height, width, 3))
    smooth: Array = patches.repeat(tile, axis=0).repeat(tile, axis=1) + grain
    return smooth.clip(0, 255).astype(np.uint8)


def _write_rows(
    tf: TensorFlow,
    workload: Workload,
    raw: Path,
    count: int,
    draw: np.random.Generator,
    write: Callable[[bytes], None],
) -> None:
    inputs, targets = workload.draw(draw, count)
    with (raw / ROWS).open("w", encoding="utf-8") as lines:
        for row, target in zip(inputs, targets, strict=True):
            parts = (row.reshape(-1), np.atleast_1d(target).reshape(-1))
            lines.write(" ".join(f"{value:g}" for part in parts for value in part) + "\n")
            write(_serialise_example(tf, *_encode_row(workload, row, target)))


def _encode_row(workload: Workload, row: Array, target: Array) -> tuple[bytes, bytes]:
    return (
        np.asarray(row, workload.inputs_dtype).tobytes(),
        np.asarray(target, workload.targets_dtype).tobytes(),
    )


def _serialise_example(tf: TensorFlow, inputs: bytes, targets: bytes | np.int64) -> bytes:
    value = targets if isinstance(targets, bytes) else targets.tobytes()
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
        for name, content in (("inputs", inputs), ("targets", value))
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialised: bytes = example.SerializeToString()
    return serialised


# --- batches --------------------------------------------------------------------------------------


def create_batches(tf: TensorFlow, workload: Workload, source: Source, reader: Reader) -> Dataset:
    """Return an endless dataset of whole batches of decoded examples.

    Images are scaled to -1 … 1. Decoding has as many threads as the process has CPUs. The
    autotuner is off, see `worker.create_dataset`.
    """
    text = tf.TensorSpec((), tf.string)

    def read_examples() -> Iterator[tuple[bytes, bytes]]:
        while True:
            yield from _read_examples(tf, source, reader)

    threads = len(os.sched_getaffinity(0))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return (
        tf.data.Dataset.from_generator(read_examples, output_signature=(text, text))
        .map(create_decoder(tf, workload), num_parallel_calls=threads)
        .batch(workload.batch, drop_remainder=True)
        .prefetch(2)
        .with_options(options)
    )


def _read_examples(tf: TensorFlow, source: Source, reader: Reader) -> Iterator[tuple[bytes, bytes]]:
    """Yield undecoded inputs and targets."""
    if source.own:
        for path, label in source.list_raw_files():
            yield reader.read_all(path), np.int64(label).tobytes()
        return
    for record in reader.read_records(source.folder / RECORDS):
        features = tf.train.Example.FromString(record).features.feature
        yield features["inputs"].bytes_list.value[0], features["targets"].bytes_list.value[0]


def create_decoder(tf: TensorFlow, workload: Workload) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function that decodes inputs and targets to the workload's shapes."""

    def decode(inputs: Any, targets: Any) -> tuple[Any, Any]:
        if workload.image is None:
            decoded = tf.io.decode_raw(inputs, _choose_raw_dtype(workload.inputs_dtype))
            decoded_targets = tf.io.decode_raw(targets, _choose_raw_dtype(workload.targets_dtype))
            return (
                tf.cast(tf.reshape(decoded, workload.inputs[1:]), workload.inputs_dtype),
                tf.cast(tf.reshape(decoded_targets, workload.targets[1:]), workload.targets_dtype),
            )
        pixels = decode_scaled_image(tf, workload, inputs)
        label = tf.reshape(tf.io.decode_raw(targets, "int64"), ())
        if len(workload.targets) > 1:
            return pixels, tf.one_hot(label, workload.targets[1], dtype=workload.targets_dtype)
        return pixels, label

    return decode


def decode_scaled_image(tf: TensorFlow, workload: Workload, encoded: Any) -> Any:
    """Decode an image, resize it to the workload's size and scale it to -1 … 1."""
    height, width, channels = workload.inputs[1:]
    pixels = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    pixels.set_shape((None, None, channels))
    resized = tf.image.resize(pixels, (height, width))
    return resized / 127.5 - 1.0


def _choose_raw_dtype(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def check_batches(tf: TensorFlow, source: Source, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches.

    Raises InputError, which names an image that cannot be decoded.
    """
    try:
        yield from batches
    except tf.errors.InvalidArgumentError as error:
        broken = [path for path, _ in source.list_raw_files() if not _can_decode(tf, path)]
        if not broken:
            raise
        first, *further = broken
        more = f" and {len(further)} more files" if further else ""
        raise InputError(
            f"TensorFlow cannot decode {first.relative_to(source.folder)}{more}"
        ) from error


def _can_decode(tf: TensorFlow, path: Path) -> bool:
    try:
        tf.io.decode_image(path.read_bytes(), expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def augment_batches(tf: TensorFlow, dataset: Dataset, seed: int) -> Dataset:
    """Mirror images randomly, shift them by up to an eighth and change their brightness.

    These are tf_cnn_benchmarks' distortions as far as they work on whole batches. As many threads
    run as there are CPUs.
    """

    def augment(images: Any, labels: Any) -> tuple[Any, Any]:
        shape = tf.shape(images)
        edge = shape[1] // 8
        padded = tf.pad(images, [[0, 0], [edge, edge], [edge, edge], [0, 0]], "REFLECT")
        shifted = tf.image.random_crop(padded, shape, seed=seed)
        mirrored = tf.image.random_flip_left_right(shifted, seed=seed)
        return tf.image.random_brightness(mirrored, 0.125, seed=seed), labels

    return dataset.map(augment, num_parallel_calls=len(os.sched_getaffinity(0)))


# --- preprocessing --------------------------------------------------------------------------------


def preprocess_examples(
    tf: TensorFlow, workload: Workload, source: Source, reader: Reader, sink: Path
) -> Iterator[int]:
    """Convert raw examples to normalized examples in a TFRecord at `sink`, endlessly.

    Each step converts one batch and yields the number of bytes written. Images are decoded on
    as many threads as there are CPUs.
    """
    while True:
        with tf.io.TFRecordWriter(str(sink)) as writer:
            for examples in _normalise_batches(tf, workload, source, reader):
                for example in examples:
                    writer.write(example)
                writer.flush()
                yield sum(map(len, examples))


def _normalise_batches(
    tf: TensorFlow, workload: Workload, source: Source, reader: Reader
) -> Iterator[list[bytes]]:
    """Yield batches of serialised examples, once through the source."""
    if workload.image is None:
        yield from _split_chunks(_read_rows(tf, workload, source, reader), workload.batch)
        return

    def read_files() -> Iterator[tuple[bytes, int]]:
        for path, label in source.list_raw_files():
            yield reader.read_all(path), label

    signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int64))
    options = tf.data.Options()
    options.autotune.enabled = False
    pixels = (
        tf.data.Dataset.from_generator(read_files, output_signature=signature)
        .map(
            lambda encoded, label: (decode_scaled_image(tf, workload, encoded), label),
            num_parallel_calls=len(os.sched_getaffinity(0)),
        )
        .batch(workload.batch, drop_remainder=True)
        .prefetch(1)
        .with_options(options)
    )
    for images, labels in pixels.as_numpy_iterator():
        yield [
            _serialise_example(tf, image.tobytes(), label)
            for image, label in zip(images, labels, strict=True)
        ]


def _read_rows(
    tf: TensorFlow, workload: Workload, source: Source, reader: Reader
) -> Iterator[bytes]:
    """Yield serialised examples from lines of numbers, inputs before targets."""
    size = math.prod(workload.inputs[1:])
    for line in reader.read_all(source.folder / RAW / ROWS).decode().splitlines():
        values = np.array(line.split(), np.float64)
        yield _serialise_example(tf, *_encode_row(workload, values[:size], values[size:]))


def _split_chunks(examples: Iterator[bytes], batch: int) -> Iterator[list[bytes]]:
    while len(chunk := list(itertools.islice(examples, batch))) == batch:
        yield chunk
