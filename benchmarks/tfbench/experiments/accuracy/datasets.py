"""Data sets of real images: scikit-learn's digits, MNIST, CIFAR-10."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tfbench import options
from tfbench.inside.convergence import ARRAYS
from tfbench.inside.digits import IMAGES, TESTING
from tfbench.inside.parameters import Array, hash_arrays
from tfbench.inside.workloads import find_workload
from tfbuild.upstream import download
from tfbuild.upstream.download import Pin
from tfcore import console
from tfcore.errors import ChecksumError, DownloadError, UsageError
from tfcore.records import write_atomic
from tfcore.settings import Paths, lock_folder

CLASSES = 10
EXAMPLES = "examples.npz"
DIGITS, MNIST, CIFAR10 = "digits", "mnist", "cifar10"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """A data set. `training` and `testing` are its numbers of images, whose pixels range from 0
    to `white`. `target` is the default accuracy to train to. Without a `pin` nothing is
    fetched. `kept` are the names under which Keras caches the file that is fetched from
    `url`.
    """

    name: str
    workload: str
    training: int
    testing: int
    target: str
    source: str
    white: int = 255
    pin: Pin | None = None
    url: str = ""
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """Training and test examples: ARRAYS in their order, images (n, height, width, channels) and
    classes (n,), both of 8 bits. `sha256` is their digest.
    """

    arrays: tuple[Array, ...]
    sha256: str

    @property
    def training(self) -> int:
        return len(self.arrays[0])

    @property
    def testing(self) -> int:
        return len(self.arrays[2])


SETS: Mapping[str, DataSet] = MappingProxyType(
    {
        data_set.name: data_set
        for data_set in (
            DataSet(
                name=DIGITS,
                workload="digits_cnn",
                training=IMAGES - TESTING,
                testing=TESTING,
                target="0.97",
                white=16,
                source="sklearn.datasets.load_digits, a quarter of it for testing",
            ),
            DataSet(
                name=MNIST,
                workload="mnist_cnn",
                training=60_000,
                testing=10_000,
                target="0.99",
                pin=Pin(
                    name="mnist.npz",
                    sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
                ),
                url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
                kept=("mnist.npz",),
                source="keras.datasets.mnist",
            ),
            DataSet(
                name=CIFAR10,
                workload="cifar10_cnn",
                training=50_000,
                testing=10_000,
                target="0.70",
                pin=Pin(
                    name="cifar-10-python.tar.gz",
                    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9328329d7fe0b5c001ce",
                ),
                url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                kept=("cifar-10-batches-py.tar.gz", "cifar-10-batches-py-target.tar.gz"),
                source="keras.datasets.cifar10, not augmented",
            ),
        )
    }
)
"""Data sets by name. The hashes are those that Keras pins."""


def find_set(name: str) -> DataSet:
    """Return the data set of that name. Raises UsageError if it is unknown."""
    return SETS[options.check_word("data set", name, SETS)]


def load_examples(data: DataSet, file: Path | None, paths: Paths, home: Path) -> Examples:
    """Load the examples: from `file` if given, otherwise from Keras's copy below the folder
    `home`, otherwise fetch them. Raises UsageError, DownloadError, ChecksumError, DiskError.
    """
    if data.pin is None:
        return load_digits_set()
    path = file or _find_cached(data, home) or _fetch_set(data, data.pin, paths)
    return build_examples(_read_examples(path, data.pin), data, str(path))


def describe_source(data: DataSet, file: Path | None, paths: Paths, home: Path) -> str:
    """Describe where the examples would come from; nothing is fetched."""
    if data.pin is None:
        return data.source
    if file is not None:
        return str(file)
    fetched = paths.downloads / data.pin.name
    path = _find_cached(data, home) or (fetched if fetched.is_file() else None)
    return str(path) if path else f"{data.source}, fetched from {data.url}"


def load_digits_set() -> Examples:
    """Load scikit-learn's digits in a fixed random order, because their own order is by writer."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  (takes a second; only training needs it)

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(IMAGES)
    images, classes = bunch.images[order].astype(np.uint8), bunch.target[order]
    halves = (images[TESTING:], classes[TESTING:], images[:TESTING], classes[:TESTING])
    return build_examples(dict(zip(ARRAYS, halves, strict=True)), SETS[DIGITS], SETS[DIGITS].source)


def build_examples(arrays: Mapping[str, Array], data: DataSet, where: str) -> Examples:
    """Build the examples in the shapes that the set's model takes.

    Raises UsageError if the arrays do not fit.
    """
    shape = find_workload(data.workload).inputs[1:]
    checked_arrays: list[Array] = []
    for images_name, classes_name in (ARRAYS[:2], ARRAYS[2:]):
        images, classes = np.asarray(arrays[images_name]), np.asarray(arrays[classes_name])
        if images.dtype != np.uint8 or images.shape[1:] not in (shape, shape[:2]):
            raise UsageError(
                f"{where}: {images_name} is {images.dtype} {images.shape}, "
                f"{data.workload} needs uint8 (n, {', '.join(map(str, shape))})"
            )
        flat = classes.reshape(-1)
        if len(flat) != len(images) or not len(flat):
            raise UsageError(f"{where}: {len(images)} images in {images_name}, {len(flat)} classes")
        if flat.dtype.kind not in "iu" or flat.min() < 0 or flat.max() >= CLASSES:
            raise UsageError(
                f"{where}: {classes_name} needs integer classes from 0 to {CLASSES - 1}"
            )
        checked_arrays += [images.reshape(-1, *shape), flat.astype(np.uint8)]
    return Examples(arrays=tuple(checked_arrays), sha256=hash_arrays(checked_arrays))


def write_examples(examples: Examples, folder: Path) -> Path:
    """Write the examples to the folder for the worker; return the absolute path. Raises
    DiskError.
    """
    buffer = io.BytesIO()
    arrays_by_name: dict[str, Any] = dict(zip(ARRAYS, examples.arrays, strict=True))
    np.savez(buffer, **arrays_by_name)
    path = folder.resolve() / EXAMPLES
    write_atomic(path, buffer.getvalue())
    return path


def _find_cached(data: DataSet, home: Path) -> Path | None:
    """Return Keras's own copy if it has the pinned hash, None otherwise."""
    for path in (home / ".keras" / "datasets" / name for name in data.kept):
        if data.pin is not None and path.is_file():
            try:
                return download.verify_file(path, data.pin)
            except ChecksumError as error:
                console.warn(f"ignored: {error.message}")
    return None


def _fetch_set(data: DataSet, pin: Pin, paths: Paths) -> Path:
    urls = [download.build_mirror_url(paths.mirror, pin.name)] if paths.mirror else []
    errors = []
    for url in (*urls, data.url):
        try:
            with lock_folder(paths.downloads, f"downloading {pin.name}", wait=True):
                return download.fetch(url, pin, paths.downloads)
        except (DownloadError, ChecksumError) as error:
            errors.append(error.message)
    raise DownloadError(
        f"cannot download {data.name}: {'; '.join(errors)}",
        hint=f"Give the file with --data-file {pin.name}, or use --data {DIGITS}",
    )


def _read_examples(path: Path, pin: Pin) -> dict[str, Array]:
    """Read the arrays of an .npz or of CIFAR-10's archive. Raises UsageError, ChecksumError, and
    DownloadError if the archive does not exist.
    """
    if path.suffix == ".npz":
        return _read_npz(path)
    if pin.name.endswith(".tar.gz") and path.name.endswith(".tar.gz"):
        return _read_archive(download.verify_file(path, pin))
    raise UsageError(
        f"{path} is not a file of examples",
        hint=f"Give an .npz file with {', '.join(ARRAYS)}, or {pin.name}",
    )


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        # (NumPy leaves its own handle of a damaged file open)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in ARRAYS}
    except KeyError as error:
        raise UsageError(
            f"{path} lacks {str(error).split()[0].strip(chr(39))}",
            hint=f"The file needs {', '.join(ARRAYS)}",
        ) from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise UsageError(f"{path} is not an .npz file of plain arrays ({error})") from error


def _read_archive(path: Path) -> dict[str, Array]:
    """Read CIFAR-10's archive. Its pickles are read only because the archive's hash is pinned; a
    row is an image of (3, 32, 32).
    """
    with tarfile.open(path) as archive:
        training = [_read_batch(archive, f"data_batch_{number}") for number in range(1, 6)]
        halves = (
            *map(np.concatenate, zip(*training, strict=True)),
            *_read_batch(archive, "test_batch"),
        )
    return dict(zip(ARRAYS, halves, strict=True))


def _read_batch(archive: tarfile.TarFile, name: str) -> tuple[Array, Array]:
    member = archive.extractfile(f"cifar-10-batches-py/{name}")
    assert member is not None  # noqa: S101  (the archive's hash is pinned)
    contents = pickle.load(member, encoding="bytes")  # noqa: S301  (the same)
    images = contents[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, np.asarray(contents[b"labels"], np.uint8)
