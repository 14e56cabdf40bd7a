"""Runs inside TensorFlow: the cases of a part of the library, fused and as TensorFlow has them,
held against float64."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfbuild.probe import float64, fusing, registry
from tfbuild.probe.fusing import Case, Tensor


def saved(module: ModuleType, tensor: Tensor, inputs: Tensor) -> list[Tensor]:
    """What `made.run` gives, before it was saved and when it was loaded. A saved function has
    TensorFlow's operations."""
    before = tensor.run(inputs)
    with tempfile.TemporaryDirectory() as folder:
        module.saved_model.save(tensor, folder)
        if b"ensorwright" in (Path(folder) / "saved_model.pb").read_bytes():
            raise AssertionError("an operation of ours was saved")
        loaded = module.saved_model.load(folder)
        return [before, loaded.run(inputs)]


def refuse(
    module: ModuleType,
    dtype: str,
    word: str,
    compute: Callable[..., Tensor],
    *shapes: Sequence[int],
) -> Tensor:
    """True, if `compute` raises an InvalidArgumentError with this word for tensors of these shapes,
    which TensorFlow does not know when it prepares the graph; otherwise an AssertionError."""
    specs = [module.TensorSpec(None, dtype) for _ in shapes]
    run = fusing.in_graph(module, input_signature=specs)(compute)
    message = "no error"
    try:
        run(*(module.ones(shape, dtype) for shape in shapes))
    except module.errors.InvalidArgumentError as error:
        message = str(error)
    if word not in message:
        raise AssertionError(f"{word!r} is not in {message!r}")
    return module.constant(value=True)


@contextlib.contextmanager
def lent(
    module: ModuleType, draws: Sequence[Any]
) -> Iterator[tuple[list[Tensor], Callable[[Tensor], Any]]]:
    """Placeholders for these arrays in a new graph, and what runs it on threads that TensorFlow
    lends to one run: nothing may be left to them when that ends (ReleaseHandler in
    tensorflow/core/framework/run_handler.cc aborts)."""
    old = module.compat.v1
    config = old.ConfigProto(intra_op_parallelism_threads=4, inter_op_parallelism_threads=2)
    options = old.RunOptions()
    options.experimental.use_run_handler_pool = True
    with module.Graph().as_default(), old.Session(config=config) as session:
        inputs = [old.placeholder(draw.dtype, draw.shape) for draw in draws]
        fed = dict(zip(inputs, draws, strict=True))
        yield inputs, lambda expected: session.run(expected, fed, options=options)


def train(
    module: ModuleType,
    dtype: str,
    layers: Callable[[Any], Sequence[Any]],
    shape: Sequence[int],
    *,
    batch: int,
) -> list[Tensor]:
    """The parameters after Keras's own training, and its prediction; `layers` makes the layers from
    keras.layers. The last batch is a smaller one."""
    module.keras.utils.set_random_seed(1)
    with float64.use_float_type(module, dtype):
        model = module.keras.Sequential(layers(module.keras.layers))
        rng = np.random.default_rng(3)
        for variable in model.trainable_variables:
            variable.assign(rng.standard_normal(variable.shape) * 0.05)
        model.compile(module.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        inputs, outputs = (rng.standard_normal((150, *each)) for each in (shape, (1,)))
        model.fit(inputs, outputs, batch, epochs=2, verbose=0, shuffle=False)
        predicted = model.predict(inputs, batch_size=100, verbose=0)
        return [*(np.asarray(variable) for variable in model.trainable_variables), predicted]


def run_both(
    case: Callable[[], fusing.State], part: str
) -> tuple[fusing.State | str, fusing.State | str]:
    """Run the case with stock kernels, and with this part of the library alone."""
    return fusing.run_with_switch(case, "0"), fusing.run_with_switch(case, part)


def bits(fused: fusing.State | str) -> str:
    """The SHA-256 of what came out in float32."""
    half = [] if isinstance(fused, str) else fused[: len(fused) // 2]
    return hashlib.sha256(b"".join(array.tobytes() for array in half)).hexdigest()


def hold(part: str, cases: Mapping[str, Case]) -> None:
    """PROGRAM OUT THREADS LIBRARY [CASE...]: writes, as JSON, per case what lies too far away, and
    what the library counted."""
    out, threads, library = sys.argv[1:4]
    tf.get_logger().setLevel("ERROR")  # (functions are traced again and again, as is meant here)
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    fused = registry.Library(Path(library))
    chosen = sys.argv[4:]
    answer: dict[str, Any] = {}
    for name, case in cases.items():
        if chosen and name not in chosen:
            continue
        before = fused.count_fused_events()
        outcomes = run_both(functools.partial(case, tf), part)
        after = fused.count_fused_events()
        answer[name] = {
            "unlike": float64.difference(*outcomes),
            "ulps": float64.ulps(*outcomes),
            "bits": bits(outcomes[1]),
            "events": {key: after[key] - before[key] for key in after if after[key] != before[key]},
        }
    Path(out).write_text(json.dumps(answer), "utf-8")
