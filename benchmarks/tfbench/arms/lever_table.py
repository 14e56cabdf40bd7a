"""The table of levers: settings of an installed TensorFlow that need no build.

A lever is a name with a value, such as `onednn=off`. It becomes environment variables of the arm's
processes. A search (`invoke tune`) tries some of them, and also other wheels and arguments of
Keras's compile(). Standard library only, because --list imports it and must be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tfbench.inside.compile_arguments import JIT, TOGETHER
from tfbench.inside.runtimes import BACKEND, JAX, ONNX, OPENVINO, RUNTIME

WHEEL, BF16, OTHER_RUNTIME, OTHER_BACKEND = "wheel", "bf16", "runtime", "backend"
PRELOAD = "LD_PRELOAD"
ISAS = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
    *("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16"),
    *("AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"),
)
"""Names that oneDNN 3.2 accepts ("CPU Dispatcher Control" in its developer guide). It ignores
others, so newer names would do nothing in TensorFlow 2.14, which has oneDNN 3.2.1."""
BFLOAT16_TOLERANCE = 5e-2
"""Tolerance of arms that round the inputs of float32 products to bfloat16 (relative error 2^-9).

With that rounding emulated in every MatMul and Conv of the six workloads, forward and backward, the
first five losses changed by at most 3.6e-3 (relative) and the predictions after them by 2.0e-2
(absolute; both mnist_mlp). Keras's mixed_bfloat16, which rounds far more, gave 2.1e-2 and 0.14.
"""
XLA_TOLERANCE = 0.5
"""Tolerance of arms with XLA or JAX. They draw other dropout masks, so losses differ as between two
seeds. In eleven models the first five losses changed by at most 0.40 with XLA (bert_tiny), the
predictions after them by 0.11 (mnist_mlp); without dropout by 5e-4 (resnet18) and 2.5e-4
(fcn_series). The report shows the differences."""


class ValueKind(StrEnum):
    """The kinds of values that a lever takes in addition to its words."""

    WORD = "nothing else"
    NUMBER = "a whole number from 1 to 9999"
    MALLOC = "the absolute path of a library"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchContext:
    """The facts that decide which values a search tries.

    `onednn` is whether oneDNN's operations are on by default, None if that is not known. `mallocs`
    are installed here; `wheels` are those beside the baseline.
    """

    vcpus: int
    onednn: bool | None
    steps_per_sample: float
    mallocs: tuple[str, ...]
    wheels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """A setting of an installed TensorFlow that needs no build.

    `doc` is its row in docs/comparing.md, empty if only a search changes it. `words` maps each word
    to the values of the variables. A number is the value of all of them. `tolerance` is wider for a
    lever that changes the precision. `tried` lists the values that a search tries; None if no
    search changes the lever. `argument` is the argument of Keras's compile() with the same effect:
    a search gives the lever its name and values, and only advises it. `runtimes` are the other
    runtimes than TensorFlow in which the lever has an effect.
    """

    name: str
    doc: str = ""
    variables: tuple[str, ...] = ()
    takes: ValueKind = ValueKind.WORD
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerance: float | None = None
    tried: Callable[[SearchContext], Iterable[str]] | None = None
    argument: str = ""
    runtimes: tuple[str, ...] = ()

    def list_tried_values(self, context: SearchContext) -> Iterable[str]:
        return self.tried(context) if self.tried else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Malloc:
    """A library that replaces malloc.

    It has file names, the preferred one first, and a Debian 12 package.
    """

    files: tuple[str, ...]
    package: str


MALLOCS = {
    "jemalloc": Malloc(files=("libjemalloc.so",), package="libjemalloc2"),
    "mimalloc": Malloc(files=("libmimalloc.so",), package="libmimalloc2.0"),
    "tcmalloc": Malloc(
        files=("libtcmalloc_minimal.so", "libtcmalloc.so"), package="libtcmalloc-minimal4"
    ),
}

_TABLE = (
    Lever(name=WHEEL, tried=lambda at: at.wheels),
    Lever(
        name="onednn",
        doc="oneDNN's graph operations; stock TensorFlow turns them on if the CPU has AVX512_VNNI, "
        "AVX512_BF16, AVX_VNNI or AMX",
        # MKL builds read only the second one, other builds only the first: core/util/port.cc.
        variables=("TF_ENABLE_ONEDNN_OPTS", "TF_DISABLE_MKL"),
        words={"on": ("1", "0"), "off": ("0", "1")},
        tried=lambda at: {True: ["off"], False: ["on"], None: ["on", "off"]}[at.onednn],
    ),
    Lever(
        name="contraction",
        doc="GEMM that oneDNN generates for Eigen's contractions; off uses Eigen's compiled one",
        variables=("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL",),
        words={"off": ("0",)},
    ),
    Lever(
        name="isa",
        doc="newest instructions that oneDNN may generate",
        variables=("ONEDNN_MAX_CPU_ISA",),
        words={name: (name,) for name in ISAS},
    ),
    Lever(
        name="intra",
        doc="threads per operation; default: the vCPUs of the cell",
        variables=("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"),
        takes=ValueKind.NUMBER,
        runtimes=(ONNX, OPENVINO),
        tried=lambda at: [str(n) for n in dict.fromkeys((1, at.vcpus // 2)) if 0 < n < at.vcpus],
    ),
    Lever(
        name="inter",
        doc="operations that run in parallel; default: the vCPUs of the cell",
        variables=("TF_NUM_INTEROP_THREADS",),
        takes=ValueKind.NUMBER,
        tried=lambda at: ["1"] if at.vcpus > 1 else [],
    ),
    Lever(
        name=BF16,
        # With 2.14.1, results on a CPU with AVX512_BF16 but without AMX do not change at all.
        doc="let oneDNN round float32 inputs to bfloat16, which it does on CPUs with AMX",
        # Only five forward kernels read TF_SET_ONEDNN_FPMATH_MODE: core/util/mkl_util.h.
        variables=("ONEDNN_DEFAULT_FPMATH_MODE",),
        words={"on": ("BF16",)},
        tolerance=BFLOAT16_TOLERANCE,
        tried=lambda _: ["on"],
    ),
    Lever(
        name="xla",
        doc="compile the training step or the request with XLA, as compile(jit_compile=True) does",
        variables=(JIT,),  # (TF_XLA_FLAGS would exclude parts of the graph without a report)
        words={"on": ("True",)},
        tolerance=XLA_TOLERANCE,
        tried=lambda _: ["True"],
        argument="jit_compile",
    ),
    Lever(
        name="malloc",
        doc="memory allocator, loaded before all other libraries",
        variables=(PRELOAD,),
        takes=ValueKind.MALLOC,
        runtimes=(ONNX, OPENVINO, JAX),
        words=dict.fromkeys(MALLOCS, ()),
        tried=lambda at: at.mallocs,
    ),
    Lever(
        name=OTHER_RUNTIME,
        runtimes=(ONNX, OPENVINO),
        doc="answers the requests of `--phase infer` instead of TensorFlow",
        variables=(RUNTIME,),
        words={name: (name,) for name in (ONNX, OPENVINO)},
    ),
    Lever(
        name=OTHER_BACKEND,
        runtimes=(JAX,),
        doc="JAX instead of TensorFlow computes the training steps and requests of a Keras 3 model",
        variables=(BACKEND,),
        words={JAX: (JAX,)},
        tolerance=XLA_TOLERANCE,
    ),
    Lever(
        name="steps_per_execution",
        variables=(TOGETHER,),
        # A sample must contain two executions or more.
        tried=lambda at: ["8"] if at.steps_per_sample >= 2 * 8 else [],
        argument="steps_per_execution",
    ),
)
LEVERS: Mapping[str, Lever] = {lever.name: lever for lever in _TABLE if lever.doc}
"""The levers of an arm, by name."""
SEARCHED: Mapping[str, Lever] = {
    lever.argument or lever.name: lever
    for lever in sorted(_TABLE, key=lambda row: (bool(row.argument), bool(row.tolerance)))
    if lever.tried
}
"""The levers of a search, by their names there. Those that change results come after the others,
and advice comes last. A stopped run continues only if this order is the same."""
