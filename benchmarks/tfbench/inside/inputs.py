"""Examples from files: what training, inference and preprocessing read when input is what counts.

The tool generates them, or they are a user's own: a folder of images, in a folder per class. One
reader serves every source, so that they differ in nothing but where bytes come from: the kernel's
page cache, the disk itself, or a disk as slow as it is told to be.

This file runs inside each arm's own environment: the standard library, NumPy and TensorFlow only.
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
"""Bytes of one read."""
PHOTOGRAPH = (375, 500)
"""Height and width of an ordinary photograph of ImageNet, which has about 110 kB."""
_QUALITY = 92
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_FRAME = struct.Struct("<QI")  # a TFRecord's length and its checksum; behind the data is another


class InputError(Exception):
    """Data that cannot be read, in one line."""


@dataclass(kw_only=True, slots=True)
class Reader:
    """Reads files in blocks and counts. `mb_s` and `iops` are the speed of the disk that it acts
    as, 0 for none; a `cold` one has the kernel forget a file before it reads it."""

    mb_s: float = 0.0
    iops: float = 0.0
    cold: bool = False
    read_bytes: int = 0
    reads: int = 0
    cached: int = 0
    """Bytes that a cold reader found in the page cache nevertheless."""
    read_s: float = 0.0
    """Seconds in which it was busy, or waited as a slow disk would have."""
    _free_at: float = 0.0

    def blocks(self, path: Path) -> Iterator[bytes]:
        handle = os.open(path, os.O_RDONLY)
        try:
            if self.cold:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                self.cached += cached_bytes(handle)
            while block := self._read(handle):
                yield block
        finally:
            os.close(handle)

    def read_all(self, path: Path) -> bytes:
        return b"".join(self.blocks(path))

    def records(self, path: Path) -> Iterator[bytes]:
        """The records of a TFRecord file. Raises InputError for one that is cut off."""
        kept = b""
        for block in self.blocks(path):
            kept += block
            offset = 0
            while len(kept) - offset >= _FRAME.size:
                length, _ = _FRAME.unpack_from(kept, offset)
                end = offset + _FRAME.size + length + 4
                if end > len(kept):
                    break
                yield kept[offset + _FRAME.size : end - 4]
                offset = end
            kept = kept[offset:]
        if kept:
            raise InputError(f"{path.name} ends in the middle of a record")

    def _read(self, handle: int) -> bytes:
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
        """Until a disk of that speed would have given so many bytes."""
        cost = max(
            count / (self.mb_s * 1e6) if self.mb_s else 0.0, 1 / self.iops if self.iops else 0.0
        )
        now = time.perf_counter()
        self._free_at = max(self._free_at, now) + cost if cost else now
        if self._free_at > now:
            time.sleep(self._free_at - now)


def cached_bytes(handle: int) -> int:
    """How much of a file is in the page cache, see mincore(2); 0 where the kernel does not say."""
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
    return 0 if failed else min(size, sum(each & 1 for each in resident) * mmap.PAGESIZE)


# --- what is read ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A folder of examples. `count` of them; `classes` are a user's own, by folder."""

    folder: Path
    count: int
    own: bool
    classes: tuple[str, ...] = ()

    def raw(self) -> list[tuple[Path, int]]:
        """Raw files, each with the number of its class."""
        if not self.own:
            return [(path, int(path.parent.name)) for path in sorted(_images(self.folder / RAW))]
        numbers = {name: number for number, name in enumerate(self.classes)}
        return [(path, numbers[_class(self.folder, path)]) for path in sorted(_images(self.folder))]


def find_source(folder: Path, workload: Workload) -> Source:
    """What is in a folder, generated or a user's own. Raises InputError for nothing of use, or for
    less than a batch."""
    mark = folder / MARK
    classes: tuple[str, ...] = ()
    own = not mark.is_file()
    if not own:
        count = int(json.loads(mark.read_text(encoding="utf-8"))["count"])
    elif workload.image is None:
        raise InputError(f"{workload.name} takes no images: a folder of one's own is of no use")
    else:
        paths = sorted(_images(folder))
        count = len(paths)
        classes = tuple(sorted({_class(folder, path) for path in paths}))
    if count < workload.batch:
        raise InputError(
            f"a batch of {workload.batch} is larger than the data: {count} examples in {folder}"
        )
    return Source(folder=folder, count=count, own=own, classes=classes)


def _images(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


def _class(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def generate(tf: TensorFlow, workload: Workload, folder: Path, count: int, seed: int) -> None:
    """Write `count` examples: JPEGs of photographs' size below RAW and in a TFRecord, or, where a
    workload takes no images, lines of text in RAW and arrays in the TFRecord. What is there already
    is kept."""
    facts = {"count": count, "seed": seed, "inputs": list(workload.inputs[1:])}
    mark = folder / MARK
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == facts:
        return
    (folder / RAW).mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(folder / RECORDS)) as writer:
        write = _write_photographs if workload.image else _write_rows
        write(tf, workload, folder / RAW, count, draw, writer.write)
    # On the disk before a cold reader comes, as only clean pages can be forgotten.
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
        picture = _photograph(draw, height, width, label)[..., : workload.inputs[-1]]
        encoded = tf.io.encode_jpeg(picture, quality=_QUALITY).numpy()
        path = raw / str(label) / f"{number:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded)
        write(_example(tf, encoded, np.int64(label)))


def _photograph(draw: np.random.Generator, height: int, width: int, label: int) -> Array:
    """Patches of colour under fine grain, which compress about as photographs do."""
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
            both = (row.reshape(-1), np.atleast_1d(target).reshape(-1))
            lines.write(" ".join(f"{value:g}" for part in both for value in part) + "\n")
            write(_example(tf, *_typed(workload, row, target)))


def _typed(workload: Workload, row: Array, target: Array) -> tuple[bytes, bytes]:
    return (
        np.asarray(row, workload.inputs_dtype).tobytes(),
        np.asarray(target, workload.targets_dtype).tobytes(),
    )


def _example(tf: TensorFlow, inputs: bytes, targets: bytes | np.int64) -> bytes:
    value = targets if isinstance(targets, bytes) else targets.tobytes()
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[each]))
        for name, each in (("inputs", inputs), ("targets", value))
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    serialised: bytes = example.SerializeToString()
    return serialised


# --- batches --------------------------------------------------------------------------------------


def batches(tf: TensorFlow, workload: Workload, source: Source, reader: Reader) -> Dataset:
    """Whole batches of decoded examples, round and round; images scaled to -1 … 1.

    Decoding has as many threads as the process has CPUs; the autotuner is off, see worker.dataset.
    """
    text = tf.TensorSpec((), tf.string)

    def examples() -> Iterator[tuple[bytes, bytes]]:
        while True:
            yield from _read(tf, source, reader)

    threads = len(os.sched_getaffinity(0))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return (
        tf.data.Dataset.from_generator(examples, output_signature=(text, text))
        .map(decoder(tf, workload), num_parallel_calls=threads)
        .batch(workload.batch, drop_remainder=True)
        .prefetch(2)
        .with_options(options)
    )


def _read(tf: TensorFlow, source: Source, reader: Reader) -> Iterator[tuple[bytes, bytes]]:
    """Undecoded inputs and targets."""
    if source.own:
        for path, label in source.raw():
            yield reader.read_all(path), np.int64(label).tobytes()
        return
    for record in reader.records(source.folder / RECORDS):
        features = tf.train.Example.FromString(record).features.feature
        yield features["inputs"].bytes_list.value[0], features["targets"].bytes_list.value[0]


def decoder(tf: TensorFlow, workload: Workload) -> Callable[[Any, Any], tuple[Any, Any]]:
    """From undecoded inputs and targets to those of the workload's shapes."""

    def decode(inputs: Any, targets: Any) -> tuple[Any, Any]:  # noqa: ANN401  (tensors)
        if workload.image is None:
            decoded = tf.io.decode_raw(inputs, _raw_dtype(workload.inputs_dtype))
            wanted = tf.io.decode_raw(targets, _raw_dtype(workload.targets_dtype))
            return (
                tf.cast(tf.reshape(decoded, workload.inputs[1:]), workload.inputs_dtype),
                tf.cast(tf.reshape(wanted, workload.targets[1:]), workload.targets_dtype),
            )
        pixels = scaled(tf, workload, inputs)
        label = tf.reshape(tf.io.decode_raw(targets, "int64"), ())
        if len(workload.targets) > 1:
            return pixels, tf.one_hot(label, workload.targets[1], dtype=workload.targets_dtype)
        return pixels, label

    return decode


def scaled(tf: TensorFlow, workload: Workload, encoded: Any) -> Any:  # noqa: ANN401  (tensors)
    """An encoded image at the workload's size, -1 … 1."""
    height, width, channels = workload.inputs[1:]
    pixels = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    pixels.set_shape((None, None, channels))
    resized = tf.image.resize(pixels, (height, width))
    return resized / 127.5 - 1.0


def _raw_dtype(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def checked(tf: TensorFlow, source: Source, batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches. Raises InputError, which names the images that cannot be decoded."""
    try:
        yield from batches
    except tf.errors.InvalidArgumentError as error:
        broken = [path for path, _ in source.raw() if not _decodes(tf, path)]
        if not broken:
            raise
        first, *others = broken
        more = f" and {len(others)} more are" if others else " is"
        raise InputError(
            f"{first.relative_to(source.folder)}{more} no image that TensorFlow reads"
        ) from error


def _decodes(tf: TensorFlow, path: Path) -> bool:
    try:
        tf.io.decode_image(path.read_bytes(), expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def augmented(tf: TensorFlow, dataset: Dataset, seed: int) -> Dataset:
    """Batches of images, each mirrored or not, shifted by up to an eighth, and lightened or
    darkened, on as many threads as there are CPUs: what tf_cnn_benchmarks calls distortions, in so
    far as whole batches can have them."""

    def augment(images: Any, labels: Any) -> tuple[Any, Any]:  # noqa: ANN401  (tensors)
        shape = tf.shape(images)
        edge = shape[1] // 8
        padded = tf.pad(images, [[0, 0], [edge, edge], [edge, edge], [0, 0]], "REFLECT")
        moved = tf.image.random_crop(padded, shape, seed=seed)
        mirrored = tf.image.random_flip_left_right(moved, seed=seed)
        return tf.image.random_brightness(mirrored, 0.125, seed=seed), labels

    return dataset.map(augment, num_parallel_calls=len(os.sched_getaffinity(0)))


# --- preprocessing --------------------------------------------------------------------------------


def preprocessed(
    tf: TensorFlow, workload: Workload, source: Source, reader: Reader, sink: Path
) -> Iterator[int]:
    """Convert raw examples to normalised ones in a TFRecord at `sink`, a batch a step, round and
    round; gives the bytes written. Images are decoded on as many threads as there are CPUs."""
    while True:
        with tf.io.TFRecordWriter(str(sink)) as writer:
            for examples in _normalised(tf, workload, source, reader):
                for example in examples:
                    writer.write(example)
                writer.flush()
                yield sum(map(len, examples))


def _normalised(
    tf: TensorFlow, workload: Workload, source: Source, reader: Reader
) -> Iterator[list[bytes]]:
    """Batches of serialised examples, once through the source."""
    if workload.image is None:
        yield from _chunks(_rows(tf, workload, source, reader), workload.batch)
        return

    def files() -> Iterator[tuple[bytes, int]]:
        for path, label in source.raw():
            yield reader.read_all(path), label

    signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int64))
    options = tf.data.Options()
    options.autotune.enabled = False
    pixels = (
        tf.data.Dataset.from_generator(files, output_signature=signature)
        .map(
            lambda encoded, label: (scaled(tf, workload, encoded), label),
            num_parallel_calls=len(os.sched_getaffinity(0)),
        )
        .batch(workload.batch, drop_remainder=True)
        .prefetch(1)
        .with_options(options)
    )
    for images, labels in pixels.as_numpy_iterator():
        yield [
            _example(tf, image.tobytes(), label)
            for image, label in zip(images, labels, strict=True)
        ]


def _rows(tf: TensorFlow, workload: Workload, source: Source, reader: Reader) -> Iterator[bytes]:
    """Lines of numbers, inputs before targets."""
    size = math.prod(workload.inputs[1:])
    for line in reader.read_all(source.folder / RAW / ROWS).decode().splitlines():
        values = np.array(line.split(), np.float64)
        yield _example(tf, *_typed(workload, values[:size], values[size:]))


def _chunks(examples: Iterator[bytes], batch: int) -> Iterator[list[bytes]]:
    while len(chunk := list(itertools.islice(examples, batch))) == batch:
        yield chunk
