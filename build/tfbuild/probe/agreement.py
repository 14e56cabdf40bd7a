"""Compares two builds of a kernel: the outcomes of its cases, and their distance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np

from tfbuild.probe import cases, registry, tolerances
from tfbuild.probe.calls import Outcome
from tfbuild.probe.cases import Argument, Array

_FLOAT, _DOUBLE, _COMPLEX128 = 1, 2, 18
# The types in which a kernel for any type is tested. None is unsigned, as casts of negative numbers
# are undefined.
_COMMON = (1, 2, 3, 6, 8, 9, 10, 14, 19)
_INT32 = 3  # DT_INT32 in tensorflow/core/framework/types.proto


def compute_outcomes(kernel: registry.Kernel) -> Iterator[tuple[str, Outcome]]:
    """Compute every handwritten case of one registered kernel with the kernel that TensorFlow
    picks.

    Raises NotImplementedError for an op that the cases cannot feed.
    """
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    op = op_def_registry.get(kernel.op)
    for types in iter_type_assignments(op, registry.list_constraints(kernel)):
        inputs = cases.list_arguments(op, types)
        dtypes = {arg.type: tf.dtypes.as_dtype(arg.type).as_numpy_dtype for arg in inputs}
        name = " ".join([op.name, *(tf.dtypes.as_dtype(number).name for number in types.values())])
        graph = _Graph(op.name, types, inputs, sliced=False)
        for kind in cases.KINDS:
            yield f"{name} {kind}", graph.run(cases.create_feeds(op.name, inputs, dtypes, kind))
        for index, pair in enumerate(cases.create_broadcasts(op.name, inputs, dtypes)):
            yield f"{name} broadcast {index}", graph.run(pair)
        sliced_graph = _Graph(op.name, types, inputs, sliced=True)
        for offset, arrays in cases.create_offset_arrays(op.name, inputs, dtypes):
            yield f"{name} offset {offset}", sliced_graph.run(arrays, offset)


def has_handmade_cases(kernel: registry.Kernel) -> bool:
    """Return whether there are handwritten cases for the op."""
    from tensorflow.python.framework import op_def_registry

    op = op_def_registry.get(kernel.op)
    try:
        for types in iter_type_assignments(op, registry.list_constraints(kernel)):
            cases.list_arguments(op, types)
    except (NotImplementedError, KeyError):
        return False
    return True


def is_reachable(kernel: registry.Kernel) -> bool:
    """Return whether the op's own definition allows the types that the kernel is registered for."""
    from tensorflow.python.framework import op_def_registry

    op = op_def_registry.get(kernel.op)
    return any(True for _ in iter_type_assignments(op, registry.list_constraints(kernel)))


def iter_type_assignments(op: Any, fixed: dict[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    """Yield values of an OpDef's type attributes that select a kernel limited to `fixed`."""
    options: dict[str, tuple[int, ...]] = {}
    for attr in op.attr:
        if attr.type != "type":
            continue
        # An unconstrained attribute is the type of an index or a shape: any valid value will do.
        valid = tuple(attr.allowed_values.list.type)
        defaults = (_INT32,) if _INT32 in valid else valid[:1] or (_FLOAT,)
        if _DOUBLE in valid and {(_DOUBLE,), (_COMPLEX128,)} & set(fixed.values()):
            defaults = (_DOUBLE,)  # (the real type for a complex type)
        if not fixed:
            defaults = tuple(t for t in _COMMON if not valid or t in valid) or defaults
        candidates = fixed.get(attr.name) or defaults
        # Some kernels are registered for types that their op forbids. No program can run them.
        options[attr.name] = tuple(t for t in candidates if not valid or t in valid)
    if not all(options.values()):
        return
    if not fixed:  # (one kernel for all types: test every pair)
        rows = itertools.product(*options.values())
        yield from (dict(zip(options, row, strict=True)) for row in rows)
        return
    for index in range(max(map(len, options.values()), default=1)):
        yield {name: types[min(index, len(types) - 1)] for name, types in options.items()}


class _Graph:
    """One op in a separate graph, fed through placeholders so that nothing is constant-folded.

    With `sliced`, array inputs are slices from an offset on, for buffers of every alignment.
    """

    def __init__(
        self, name: str, types: dict[str, int], inputs: tuple[Argument, ...], *, sliced: bool
    ) -> None:
        import tensorflow as tf

        self._errors = tf.errors.OpError
        with tf.Graph().as_default() as graph:
            self._offset = tf.compat.v1.placeholder(tf.int32, ())
            dtypes = [tf.dtypes.as_dtype(argument.type) for argument in inputs]
            self._feeds = [tf.compat.v1.placeholder(dtype, None) for dtype in dtypes]
            tensors = [
                _create_input(argument, dtype, feed[self._offset :] if sliced else feed)
                for argument, dtype, feed in zip(inputs, dtypes, self._feeds, strict=True)
            ]
            with tf.control_dependencies([ready for _, ready in tensors if ready is not None]):
                operation = _create_op(graph, name, types, [tensor for tensor, _ in tensors])
            with tf.control_dependencies([operation]):
                self._results = list(operation.outputs) + [
                    tf.raw_ops.ReadVariableOp(resource=tensor, dtype=dtype)
                    for argument, dtype, (tensor, _) in zip(inputs, dtypes, tensors, strict=True)
                    if argument.role == "resource"
                ]
        options = tf.compat.v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        options.graph_options.optimizer_options.opt_level = -1
        self._session = tf.compat.v1.Session(graph=graph, config=options)

    def run(self, arrays: tuple[Array, ...], offset: int = 0) -> Outcome:
        feeds = dict(zip(self._feeds, arrays, strict=True)) | {self._offset: offset}
        try:
            return tuple(np.array(result) for result in self._session.run(self._results, feeds))
        except self._errors as error:
            return type(error).__name__


def _create_input(argument: Argument, dtype: Any, value: Any) -> tuple[Any, Any]:
    """Return the tensor that the op gets, and the operation that must run before the op, or
    None.
    """
    import tensorflow as tf

    if argument.role == "resource":
        handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=None, shared_name=argument.name)
        return handle, tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    if argument.role == "reference":
        variable = tf.raw_ops.VariableV2(dtype=dtype, shape=None, shared_name=argument.name)
        return tf.raw_ops.Assign(ref=variable, value=value, validate_shape=False), None
    return value, None


def _create_op(graph: Any, name: str, types: dict[str, int], tensors: list[Any]) -> Any:
    import tensorflow as tf

    attributes = {key: tf.compat.v1.AttrValue(type=number) for key, number in types.items()}
    if name in cases.SEEDED:
        attributes |= {key: tf.compat.v1.AttrValue(i=7) for key in ("seed", "seed2")}
    return graph.create_op(name, tensors, attrs=attributes)


def measure_distance(
    op: str, stock: Outcome, tuned: Outcome, scale: Outcome | None = None
) -> float:
    """Return the distance of two outcomes in units in the last place, or infinity if they are
    not comparable.

    A denormal and a zero count as equal: TensorFlow flushes denormals, and a wider vector
    unit flushes at another step. Results are measured element by element, relative to `scale`
    where it is given, and otherwise, for ops that add up (tolerances.is_scaled_by_result),
    relative to the result's median magnitude or 1, whichever is larger.
    """
    if isinstance(stock, str) or isinstance(tuned, str):
        return 0.0 if isinstance(stock, str) and stock == tuned else np.inf
    if [a.shape for a in stock] != [b.shape for b in tuned]:
        return np.inf
    scales = scale if _has_same_layout(scale, stock) else [None] * len(stock)
    rows = zip(stock, tuned, scales, strict=True)
    return max((_measure_ulps(op, a, b, c) for a, b, c in rows), default=0.0)


def _has_same_layout(
    scale: Outcome | None, stock: tuple[Array, ...]
) -> TypeGuard[tuple[Array, ...]]:
    if scale is None or isinstance(scale, str):
        return False
    return [(a.shape, a.dtype) for a in scale] == [(b.shape, b.dtype) for b in stock]


def _measure_ulps(op: str, stock: Array, tuned: Array, terms: Array | None) -> float:
    if stock.dtype != tuned.dtype:
        return np.inf
    if stock.size == 0:
        return 0.0
    if stock.dtype.kind in "biuOS":
        return 0.0 if np.array_equal(stock, tuned) else np.inf
    eps, tiny = cases.get_precision(stock.real.dtype)
    wide = np.complex128 if stock.dtype.kind == "c" else np.float64
    a, b = stock.astype(wide), tuned.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    # A complex number counts as not finite if either part is infinite or NaN.
    nonfinite_a, nonfinite_b = a[~finite], b[~finite]
    if wide is np.complex128:
        if np.isfinite(nonfinite_a).any() or np.isfinite(nonfinite_b).any():
            return np.inf
    elif not np.array_equal(nonfinite_a, nonfinite_b, equal_nan=True):
        return np.inf
    a, b = a[finite], b[finite]
    if a.size == 0:
        return 0.0
    with np.errstate(over="ignore"):  # (huge numbers of opposite sign: the distance is infinite)
        error = np.abs(a - b)
    error[error <= tiny] = 0.0
    scale = np.maximum(np.abs(a), tiny)
    if terms is not None:
        scale = np.fmax(scale, np.abs(terms.astype(wide)[finite]))
    elif tolerances.is_scaled_by_result(op):
        # (the upper median: the mean of two huge numbers would overflow)
        scale = np.maximum(scale, max(1.0, float(np.sort(np.abs(a))[a.size // 2])))
    return float(np.max(error / scale) / eps)


def get_allowed_distance(op: str, outcome: Outcome) -> float:
    """Return the largest allowed distance between two builds of an op's kernel, for results of
    these types.
    """
    arrays = () if isinstance(outcome, str) else outcome
    return tolerances.get_allowed_distance(
        op, real=not any(array.dtype.kind == "c" for array in arrays)
    )
