"""Time products and convolutions of `fused/products` and of other libraries; see README.md.

Each round starts every library once for each shape, in random order. A speed is the mean over
rounds. A ratio has the interval of a comparison with the rounds as launches.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.measuring.statistics import compute_log_ratio, estimate_geometric_mean
from tfbuild.errors import SampleError

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "build" / "tfbuild" / "native"
OURS = "ours"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-w")
CODE = {"avx2": "haswell", "avx512": "skylake-avx512"}
"""The target of our code, by the value of --vectors."""
CAPS = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "LIBXSMM_TARGET": "hsw",
        "BLIS_ARCH_TYPE": "3",
    },
    "avx512": {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "LIBXSMM_TARGET": "skx",
        "BLIS_ARCH_TYPE": "0",
    },
}
"""BLIS 0.9 takes numbers (arch_t in its bli_type_defs.h): Skylake-X is 0, Haswell 3."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "BLIS_NUM_THREADS": "1"}
# Dense layers of the six models and their weight gradients; layers of an LSTM and of BERT.
PRODUCTS = (
    *((128, 784, 512, ""), (784, 128, 512, "t"), (512, 128, 512, "t"), (9216, 128, 128, "t")),
    *((128, 512, 512, ""), (256, 256, 1024, ""), (1024, 256, 256, "t")),
)
CONVOLUTIONS = (
    *((128, 26, 32, 64), (32, 16, 64, 64), (32, 8, 128, 128)),
    *((32, 4, 256, 256), (1, 56, 64, 64)),
)


@dataclass(frozen=True)
class Timing:
    """The arguments of timed.cc, and the number of additions and multiplications."""

    name: str
    words: tuple[str, ...]
    operations: float


@dataclass(frozen=True)
class TimedLibrary:
    name: str
    program: Path
    convolves: bool = False
    folder: Path | None = None


def timings() -> Iterator[Timing]:
    for m, k, n, turned in PRODUCTS:
        words = ("product", *map(str, (m, k, n)), *([turned] if turned else []))
        name = f"{m}x{k}{' transposed' if turned else ''} by {k}x{n}"
        yield Timing(name, words, 2.0 * m * k * n)
    for images, size, channels, filters in CONVOLUTIONS:
        for operand, of in (("outputs", "outputs"), ("inputs", "gradient"), ("filter", "filter's")):
            words = (operand, *map(str, (images, size, channels, filters)))
            name = f"3x3, {images} of {size}x{size}, {channels} to {filters}, {of}"
            yield Timing(name, words, 2.0 * 9 * images * size * size * channels * filters)


def milliseconds(
    library: TimedLibrary, timing: Timing, seconds: float, caps: Mapping[str, str]
) -> float:
    search_path = {"LD_LIBRARY_PATH": str(library.folder)} if library.folder else {}
    completed = subprocess.run(
        [str(library.program), str(seconds), *timing.words],
        env={**os.environ, **ONE_THREAD, **caps, **search_path},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(completed.stdout.split()[0])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the other library's time divided by ours, with its interval."""
    rounds = zip(theirs, ours, strict=True)
    interval = estimate_geometric_mean(
        [[compute_log_ratio([their_s], [our_s])] for their_s, our_s in rounds]
    )
    return f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", choices=CODE, required=True)
    parser.add_argument("--onednn", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument(
        "--xsmm", metavar="FOLDER", help="folder with libxsmm.a and libxsmmnoblas.a"
    )
    parser.add_argument("--blas", action="append", default=[], metavar="NAME=LIBRARY.so")
    parser.add_argument("--include", action="append", default=[], help="folder with headers")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--compiler", default="clang++-16")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            libraries = [*every(Path(folder), options)]
            measure(libraries, options.rounds, options.seconds, CAPS[options.vectors])
    except subprocess.CalledProcessError as error:
        message = (error.stderr or "its output is above").strip().splitlines()[-1]
        parser.exit(1, f"error: {Path(error.cmd[0]).name} failed: {message}\n")
    except (OSError, SampleError) as error:
        parser.exit(1, f"error: {error}\n")


def every(folder: Path, options: argparse.Namespace) -> Iterator[TimedLibrary]:
    """Compile and yield our library, then the requested ones."""
    (folder / "tensorwright").symlink_to(NATIVE)
    headers = [f"-I{include}" for include in (folder, *options.include)]

    def compiled(name: str, *flags: str) -> Path:
        program = folder / name
        command = [options.compiler, *FLAGS, *headers, str(HERE / "timed.cc"), *flags]
        subprocess.run([*command, "-o", str(program)], check=True)
        return program

    yield TimedLibrary(OURS, compiled(OURS, "-DOURS", f"-march={CODE[options.vectors]}"), True)
    for spec in options.onednn:
        name, _, where = spec.partition("=")
        library = str(Path(where) / "libdnnl.so.3")
        program = compiled(name, "-DDNNL", library, "-Wl,--allow-shlib-undefined")
        yield TimedLibrary(name, program, True, Path(where).resolve())
    if options.xsmm:
        archives = [str(Path(options.xsmm) / f"libxsmm{end}.a") for end in ("", "noblas")]
        yield TimedLibrary("libxsmm", compiled("libxsmm", "-DXSMM", *archives, "-ldl", "-pthread"))
    for spec in options.blas:
        name, _, where = spec.partition("=")
        program = compiled(name, where)
        yield TimedLibrary(name, program, folder=Path(where).resolve().parent)


def measure(
    libraries: Sequence[TimedLibrary], rounds: int, seconds: float, caps: Mapping[str, str]
) -> None:
    print(
        f"| | {OURS}, GF/s | {' | '.join(timed_library.name for timed_library in libraries[1:])} |"
    )
    print(f"|---|--:|{'---|' * (len(libraries) - 1)}")
    order = random.Random(1)  # noqa: S311  (an order)
    for timing in timings():
        able = [
            timed_library
            for timed_library in libraries
            if timed_library.convolves or timing.words[0] == "product"
        ]
        times: dict[str, list[float]] = {timed_library.name: [] for timed_library in able}
        for _ in range(rounds):
            for library in order.sample(able, len(able)):
                times[library.name].append(milliseconds(library, timing, seconds, caps))
        speed = timing.operations / statistics.fmean(times[OURS]) * 1e-6
        cells = [
            ratio(times[OURS], times[timed_library.name]) if timed_library in able else ""
            for timed_library in libraries[1:]
        ]
        print(f"| {timing.name} | {speed:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
