"""Runs inside TensorFlow: while loops are run fused and as TensorFlow has them (held.py)."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
from tests.integration import held

from tfbuild.native.ops.loops import cases as loops
from tfbuild.probe import float64
from tfbuild.probe.fusing import Case, Tensor, in_graph

_STEPS = 3
_MIB = 128
"""What 8000 items of 64 KiB would take is 500."""


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def a_model() -> Tensor:
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((9,), dtype="int32"),
            layers.Embedding(50, 8),
            layers.Bidirectional(layers.LSTM(12, return_sequences=True)),
            layers.GRU(7, dropout=0.0),
            layers.Dense(1),
        ]
    )


def fitted(module: ModuleType, dtype: str, **compiling: object) -> list[Tensor]:
    """Keras's own training and prediction; the last batch is a smaller one."""
    with float64.use_float_type(module, dtype):
        model = a_model()
        rng = np.random.default_rng(3)
        for variable in model.trainable_variables:
            variable.assign(rng.standard_normal(variable.shape) * 0.3)
        model.compile(module.keras.optimizers.SGD(0.1), "mse", jit_compile=False, **compiling)
        inputs, outputs = rng.integers(0, 50, (70, 9)), rng.standard_normal((70, 1))
        model.fit(inputs, outputs.astype(dtype), 16, epochs=2, verbose=0, shuffle=False)
        predicted = model.predict(inputs, verbose=0)
        return [
            *(np.asarray(trainable_variable) for trainable_variable in model.trainable_variables),
            predicted,
        ]


def filling(module: ModuleType, dtype: str) -> Callable[[Tensor], Tensor]:
    """Three times as many ones as a tensor of a given shape has elements, and one."""

    @in_graph(module)
    def filled(shape: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, *_: step < 3,
            lambda step, total: (step + 1, total + module.reduce_sum(module.ones(shape, dtype))),
            (0, module.constant(1, dtype)),
        )[1]

    return filled


def refused(module: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own; many whole numbers are no reason for a plan of their own."""

    @in_graph(module)
    def marked(words: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, *_: step < 3,
            lambda step, total: (step + 1, module.where(words > 50, total * unit, unit)),
            (0, module.fill((100,), unit)),
        )[1]

    unit, filled = module.constant(1, dtype), filling(module, dtype)
    right = []
    for shape in ([-1, 3], [3, -2]):
        try:
            filled(module.constant(shape))
        except module.errors.InvalidArgumentError as error:
            right.append("must be >= 0" in str(error))
    return [module.constant(right), filled(module.constant([2, 3])), marked(module.range(100))]


def refuses(module: ModuleType, run: Callable[..., Tensor], *arguments: Tensor) -> None:
    """TensorFlow has no result, and says why."""
    errors = module.errors
    try:
        run(*arguments)
    except (errors.InvalidArgumentError, errors.ResourceExhaustedError):
        return
    raise AssertionError("this has to be an error")


def mismatched(module: ModuleType, dtype: str) -> list[Tensor]:
    """Operands that would broadcast, of operations that do not: errors, but for the last ones."""
    raw = module.raw_ops

    def tried(gives: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
        @in_graph(
            module,
            input_signature=[module.TensorSpec(shape, dtype) for shape in ((None, None), None)],
        )
        def run(value: Tensor, other_tensor: Tensor) -> Tensor:
            return module.while_loop(
                lambda step, _: step < 2,
                lambda step, total: (
                    step + 1,
                    total + module.reduce_sum(gives(value, other_tensor), [0, 1]),
                ),
                (0, module.constant(0, dtype)),
            )[1]

        return run

    def slice_gradient(value: Tensor, other_tensor: Tensor) -> Tensor:
        ends = {"begin": [0, 0], "end": [2, 2], "strides": [1, 1]}
        return raw.StridedSliceGrad(shape=module.shape(value), dy=other_tensor, **ends)

    programs = [
        tried(pair)
        for pair in (
            lambda value, other_tensor: raw.ReluGrad(gradients=value, features=other_tensor),
            lambda value, other_tensor: raw.Relu6Grad(gradients=value, features=other_tensor),
            lambda value, other_tensor: raw.TanhGrad(y=value, dy=other_tensor),
            lambda value, other_tensor: raw.SigmoidGrad(y=value, dy=other_tensor),
            lambda value, bias: raw.BiasAdd(value=value, bias=bias),
            slice_gradient,
        )
    ]
    draw = functools.partial(float64.draw_as, module, dtype)
    for run in programs[:-1]:
        refuses(module, run, draw((2, 3), 1), draw((1,), 2))
    refuses(module, programs[-1], draw((2, 3), 1), draw((1, 2), 2))
    shapes = (*([(2, 3)] * (len(programs) - 2)), (3,), (2, 2))
    return [run(draw((2, 3), 1), draw(pair, 2)) for run, pair in zip(programs, shapes, strict=True)]


def beyond(module: ModuleType, dtype: str) -> list[Tensor]:
    """Sizes that no tensor has or no memory holds, and items that no list has, are errors."""
    filled = filling(module, dtype)

    @in_graph(module)
    def shaped(shape: Tensor, value: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, *_: step < 3,
            lambda step, total: (step + 1, total + module.reduce_sum(module.reshape(value, shape))),
            (0, module.constant(1, dtype)),
        )[1]

    @in_graph(module)
    def read(items: Tensor, times: Tensor) -> Tensor:
        array = module.TensorArray("int32", 3, clear_after_read=False, element_shape=())
        array = array.unstack(items)
        return module.while_loop(
            lambda step, _: step < times,
            lambda step, total: (step + 1, total + array.read(step)),
            (0, 0),
        )[1]

    for size in (2**21, 2**32, 2**40):
        large = module.constant([size, size], "int64")
        refuses(module, filled, large)
        refuses(module, shaped, large, module.zeros((0, 3), dtype))
    ones = module.ones((3,), "int32")
    refuses(module, read, ones, module.constant(9))
    return [
        filled(module.constant([2, 3], "int64")),
        shaped(module.constant([3, 2], "int64"), module.ones((2, 3), dtype)),
        read(ones, module.constant(3)),
    ]


def joined(module: ModuleType, dtype: str) -> list[Tensor]:
    """Items that are added to those of a list lie where a state and another list have them, too;
    what does not fit is an error, as is an item of a rank that the list does not have."""
    raw = module.raw_ops
    lists = ("before", "after", "alone")
    any_rank, rank_one = module.constant(-1), module.constant([-1])

    def looped(which: str) -> Callable[..., list[Tensor]]:
        signature = [
            module.TensorSpec(None, dtype),
            module.TensorSpec((None, 3), dtype),
            module.TensorSpec(None, "int32"),
        ]

        @in_graph(module, input_signature=signature)
        def run(start_value: Tensor, start: Tensor, element_shape: Tensor) -> list[Tensor]:
            def added(items: Tensor, step: Tensor, value: Tensor) -> Tensor:
                flat = module.reshape(value * 1, module.shape(value))
                tensor_list_reserve = raw.TensorListReserve(
                    element_shape=element_shape, num_elements=_STEPS, element_dtype=dtype
                )
                tensor_list_reserve = raw.TensorListSetItem(
                    input_handle=tensor_list_reserve,
                    index=step,
                    item=value if which != "alone" else flat,
                )
                return raw.AddN(inputs=[items, tensor_list_reserve])

            def body(step: Tensor, *values: Any) -> tuple[Any, ...]:
                first, items, state, last = values
                value = module.tanh(state + start)
                again = module.reshape(value, module.shape(start))
                first, last = (
                    member.write(step, value) if which == place else member
                    for place, member in zip(lists, (first, last), strict=False)
                )
                return step + 1, first, added(items, step, again), value, last

            array = functools.partial(
                module.TensorArray, dtype, _STEPS, element_shape=(None, 3), clear_after_read=False
            )
            zeros = module.zeros_like(start)[None] + module.zeros((_STEPS, 1, 1), dtype)
            items = raw.TensorListFromTensor(tensor=start_value, element_shape=-1)
            _, first, items, state, last = module.while_loop(
                lambda step, *_: step < _STEPS,
                body,
                (0, array().unstack(zeros), items, start, array().unstack(zeros)),
            )
            stacked = raw.TensorListStack(
                input_handle=items, element_shape=-1, element_dtype=dtype, num_elements=_STEPS
            )
            return [first.stack(), stacked, state, last.stack()]

        return run

    draw = functools.partial(float64.draw_as, module, dtype)
    start, results = draw((4, 3), 1), []
    for run in map(looped, lists):
        results += run(draw((_STEPS, 4, 3), 2), start, any_rank)
        refuses(module, run, draw((_STEPS, 4, 3), 2), start, rank_one)
        refuses(module, run, draw((_STEPS, 5, 3), 2), start, any_rank)
        refuses(module, run, draw((_STEPS + 1, 4, 3), 2), start, any_rank)
    return results


def shaped(module: ModuleType, dtype: str) -> list[Tensor]:
    """Shapes of whole numbers: of one that a loop counts, and of a sum of unlike ones."""

    def wrote(item: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., list[Tensor]]:
        @in_graph(
            module, input_signature=[module.TensorSpec(None, name) for name in (dtype, "int32")]
        )
        def run(value: Tensor, first: Tensor) -> list[Tensor]:
            _, value, array = module.while_loop(
                lambda step, *_: step < _STEPS,
                lambda step, value, array: (
                    step + 1,
                    value * 0.5,
                    array.write(step, item(step, value, first)),
                ),
                (0, value, module.TensorArray("int32", _STEPS, infer_shape=False)),
            )
            return [value, array.stack()]

        return run

    def shape(of: Tensor) -> Tensor:
        return module.raw_ops.Shape(input=of)

    runs = (
        wrote(lambda step, *_: shape(module.stack([step]))),
        wrote(lambda _, value, tensor: tensor + shape(value)),
        wrote(lambda _, value, tensor: shape(value) * shape(tensor)),
    )
    arguments = float64.draw_as(module, dtype, (2, 3), 1), module.constant([[1]])
    return [result for run in runs for result in run(*arguments)]


def reduced(module: ModuleType, dtype: str) -> list[Tensor]:
    """An axis that is out of range or given twice is an error. An axis that a slice removes has
    one element, from `begin`, whatever its other masks say."""
    raw = module.raw_ops

    @in_graph(
        module,
        input_signature=[
            module.TensorSpec((None, None), dtype),
            module.TensorSpec(None, dtype),
            module.TensorSpec((None,), "int32"),
        ],
    )
    def summed(value: Tensor, start: Tensor, axes: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < 3,
            lambda step, total: (step + 1, total * 0.5 + raw.Sum(input=value, axis=axes)),
            (0, start),
        )[1]

    @in_graph(module)
    def sliced(value: Tensor, start: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < 3,
            lambda step, total: (
                step + 1,
                total * 0.5
                + raw.StridedSlice(
                    input=value,
                    begin=[1, 0],
                    end=[2, 4],
                    strides=[1, 1],
                    begin_mask=1,
                    shrink_axis_mask=1,
                ),
            ),
            (0, start),
        )[1]

    draw = functools.partial(float64.draw_as, module, dtype)
    value, start = draw((4, 4), 1), draw((4,), 2)
    for axes in ([0, 0], [1, -1], [2], [-3]):
        refuses(module, summed, value, start, module.constant(axes))
    results = [summed(value, start, module.constant(axes)) for axes in ([0], [-1], [0, 1])]
    return [*results, sliced(value, start)]


@contextlib.contextmanager
def without_grappler(module: ModuleType) -> Iterator[None]:
    """Grappler removes some ops that would raise an error."""
    options = module.config.optimizer
    options.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        options.set_experimental_options({"disable_meta_optimizer": False})


def ranks(module: ModuleType, dtype: str) -> list[Tensor]:
    """Axes, bounds and shapes whose rank or length stock kernels do not take are errors."""
    raw, numbers = module.raw_ops, module.constant

    def flat(tensor: Tensor) -> Tensor:
        return module.reshape(tensor, [-1])

    def looped(gives: Callable[..., Tensor], count: int) -> Callable[..., Tensor]:
        specs = [module.TensorSpec(None, name) for name in (dtype, *("int32",) * count)]

        @in_graph(module, input_signature=specs)
        def run(value: Tensor, *arguments: Tensor) -> Tensor:
            return module.while_loop(
                lambda step, _: step < _STEPS,
                lambda step, total: (
                    step + 1,
                    total + 2 * raw.Sum(input=flat(gives(step, value, *arguments)), axis=0),
                ),
                (0, module.constant(0, dtype)),
            )[1]

        return run

    def row(value: Tensor, step: Tensor, end: Tensor, strides: Tensor) -> Tensor:
        begin = module.stack([step])
        return raw.StridedSlice(
            input=value, begin=begin, end=end, strides=strides, shrink_axis_mask=1
        )

    def slice_gradient(value: Tensor, shape: Tensor) -> Tensor:
        ends = {"begin": [0, 0], "end": [2, 2], "strides": [1, 1]}
        return raw.StridedSliceGrad(shape=shape, dy=value[:2, :2] * 2, **ends)

    def reduced(value: Tensor, shape: Tensor) -> Tensor:
        return module.reduce_sum(value, raw.BroadcastGradientArgs(s0=shape, s1=[4, 4])[0])

    def packed(value: Tensor, sizes: Sequence[Tensor], axis: int) -> Tensor:
        return raw.Reshape(tensor=value, shape=raw.Pack(values=sizes, axis=axis))

    def concatenated(value: Tensor, sizes: Sequence[Tensor], axis: Tensor) -> Tensor:
        return raw.Reshape(tensor=value, shape=raw.ConcatV2(values=sizes, axis=axis))

    value = float64.draw_as(module, dtype, (4, 4), 1)
    programs: list[tuple[Callable[..., Tensor], list[Any], list[Any]]] = [
        (lambda _, x, axis: raw.Split(axis=axis, value=x, num_split=2)[0], [0], [[0]]),
        (
            lambda _, x, sizes: raw.SplitV(value=x, size_splits=sizes, axis=0, num_split=1)[0],
            [[4]],
            [[-1]],
        ),
        (lambda step, x, end: row(x, step, end, numbers([1])), [[9]], [[9, 9]]),
        (lambda step, x, strides: row(x, step, module.stack([9]), strides), [[1]], [[[1]]]),
        (lambda _, x, shape: slice_gradient(x, shape), [[4, 4]], [[[4, 4]]]),
        (lambda _, x, shape: reduced(x, shape), [[1, 4]], [[[1, 4]]]),
        (lambda _, x, *sizes: packed(x, sizes, -1), [2, 8], [[2], [8]]),
        (lambda _, x, axis, *sizes: concatenated(x, sizes, axis), [0, [2], [8]], [1, [2], [8]]),
    ]
    results = []
    with without_grappler(module):
        for gives, right, wrong in programs:
            run = looped(gives, len(right))
            results.append(run(value, *map(numbers, right)))
            refuses(module, run, value, *map(numbers, wrong))
        off = looped(lambda _, x, *sizes: packed(x, sizes, 1), 2)
        refuses(module, off, value, numbers(2), numbers(8))
    return results


def summed_slices(module: ModuleType, dtype: str) -> list[Tensor]:
    """A sum over iterations of gradients of slices, whose shape has to be a vector."""
    specs = [*[module.TensorSpec((None, None), dtype)] * 2, module.TensorSpec(None, "int32")]

    @in_graph(module, input_signature=specs)
    def run(total: Tensor, value: Tensor, shape: Tensor) -> Tensor:
        def part() -> Tensor:
            return module.raw_ops.StridedSliceGrad(
                shape=shape,
                begin=[0, 1],
                end=[3, 3],
                strides=[1, 1],
                dy=module.matmul(value, value[:, :2], transpose_a=True),
            )

        return module.while_loop(
            lambda step, _: step < _STEPS,
            lambda step, total: (step + 1, total + part()),
            (0, total),
            shape_invariants=(module.TensorShape(()), module.TensorShape(None)),
        )[1]

    draw = functools.partial(float64.draw_as, module, dtype)
    total, value = draw((3, 6), 1), draw((5, 3), 2)
    refuses(module, run, total, value, module.constant([[3, 6]]))
    return [run(total, value, module.constant([3, 6]))]


def changes_lists(module: ModuleType, dtype: str) -> Mapping[str, Callable[..., Any]]:
    """Bodies of loops, by what they do with a list of int32, or of floats where `dtype` is."""
    raw, number = module.raw_ops, module.constant(1)
    value = module.constant(0.5, dtype)
    read = {"element_shape": np.array([], "int32"), "element_dtype": "int32"}

    def add(step: Tensor, items: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        more = raw.TensorListReserve(
            element_shape=-1, num_elements=_STEPS, element_dtype=value.dtype
        )
        item = module.tanh(value * 2)
        more = raw.TensorListSetItem(input_handle=more, index=step, item=item)
        return raw.AddN(inputs=[items, more]), last + 1

    def pop(_: Tensor, items: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        items, item = raw.TensorListPopBack(input_handle=items, **read)
        return items, last + item

    return {
        "set a float": lambda step, items, last: (
            raw.TensorListSetItem(input_handle=items, index=step, item=value),
            last + 1,
        ),
        "set": lambda step, items, last: (
            raw.TensorListSetItem(input_handle=items, index=step, item=number),
            last + 1,
        ),
        "set there": lambda _, items, last, index: (
            raw.TensorListSetItem(input_handle=items, index=index, item=number),
            last + 1,
        ),
        "push": lambda _, items, last: (
            raw.TensorListPushBack(input_handle=items, tensor=number),
            last + 1,
        ),
        "get": lambda step, items, last: (
            items,
            last + raw.TensorListGetItem(input_handle=items, index=step, **read),
        ),
        "pop": pop,
        "add": add,
        "read": lambda _, items, last, handle: (
            items,
            last + raw.Shape(input=raw.ReadVariableOp(resource=handle, dtype="int32"))[0],
        ),
    }


def typed(module: ModuleType, dtype: str) -> list[Tensor]:
    """An op on a list whose items have another type than the op's is an error, as are an index
    that is no scalar and a variable of another type."""
    raw, bodies = module.raw_ops, changes_lists(module, dtype)

    def run(name: str, items: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        specs = [module.TensorSpec(None, tensor.dtype) for tensor in more]

        @in_graph(module, input_signature=[module.TensorSpec((), module.variant), *specs])
        def run(items: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
            _, items, last = module.while_loop(
                lambda step, *_: step < _STEPS,
                lambda step, *values: (step + 1, *bodies[name](step, *values, *more)),
                (0, items, 1),
                shape_invariants=tuple(map(module.TensorShape, ((), None, None))),
            )
            return raw.TensorListLength(input_handle=items), last

        return run(items, *more)

    reserved = functools.partial(raw.TensorListReserve, element_shape=-1, num_elements=_STEPS)
    empty = functools.partial(raw.EmptyTensorList, element_shape=-1, max_num_elements=-1)
    filled, number = functools.partial(raw.TensorListFromTensor, element_shape=-1), module.constant
    made: Mapping[str, Mapping[str, Tensor]] = {
        name: {
            "reserved": reserved(element_dtype=name),
            "empty": empty(element_dtype=name),
            "filled": filled(tensor=module.ones((_STEPS,), name)),
        }
        for name in ("int32", "int64", dtype)
    }
    results: list[Tensor] = []
    for name, how, right, wrong in (
        *(("set a float", "reserved", dtype, "int32"), ("add", "reserved", dtype, "int32")),
        *(("set", "reserved", "int32", "int64"), ("push", "empty", "int32", "int64")),
        *(("get", "filled", "int32", "int64"), ("pop", "filled", "int32", "int64")),
    ):
        results += run(name, made[right][how])
        refuses(module, run, name, made[wrong][how])
    items = made["int32"]["reserved"]
    results += run("set there", items, number(2))
    refuses(module, run, "set there", items, number([2]))
    variables = [module.Variable([1, 2]), module.Variable(module.ones((2,), dtype))]
    results += run("read", items, variables[0].handle)
    refuses(module, run, "read", items, variables[1].handle)
    return results


def merged(module: ModuleType, dtype: str) -> list[Tensor]:
    """A list to which a loop adds another gets the element shape of both, and no limit."""
    raw = module.raw_ops
    specs = [module.TensorSpec(None, dtype), *[module.TensorSpec(None, "int32")] * 3]

    def run_with(*, looks: bool) -> Callable[..., list[Tensor]]:
        @in_graph(module, input_signature=specs)
        def run(value: Tensor, own: Tensor, other: Tensor, size: Tensor) -> list[Tensor]:
            def body(step: Tensor, items: Tensor, state: Tensor, seen: Any) -> tuple[Any, ...]:
                state = module.tanh(state)
                if looks:
                    shape = raw.TensorListElementShape(input_handle=items, shape_type="int32")
                    seen = seen.write(step, shape)
                added = raw.TensorListReserve(
                    element_shape=other, num_elements=size, element_dtype=dtype
                )
                added = raw.TensorListSetItem(input_handle=added, index=step, item=state * 2)
                return step + 1, raw.AddN(inputs=[items, added]), state, seen

            items = raw.EmptyTensorList(
                element_shape=own, max_num_elements=_STEPS, element_dtype=dtype
            )
            for _ in range(_STEPS):
                items = raw.TensorListPushBack(input_handle=items, tensor=value)
            seen = module.TensorArray("int32", _STEPS, infer_shape=False)
            _, items, state, seen = module.while_loop(
                lambda step, *_: step < _STEPS, body, (0, items, value, seen)
            )
            more = raw.TensorListPushBack(input_handle=items, tensor=value)
            return [
                state,
                raw.TensorListElementShape(input_handle=items, shape_type="int32"),
                raw.TensorListLength(input_handle=more),
                seen.read(_STEPS - 1) if looks else 0,
            ]

        return run

    value, number = float64.draw_as(module, dtype, (4, 3), 1), module.constant
    run, looking = run_with(looks=False), run_with(looks=True)
    results: list[Tensor] = []
    for own, other in ((-1, [4, 3]), ([-1, 3], [4, -1]), ([4, 3], -1), (-1, -1)):
        results += run(value, number(own), number(other), number(_STEPS))
    results += looking(value, number(-1), number([4, -1]), number(_STEPS))
    for shape in ([-2], 7, [[4, 3]], [4, 4]):
        refuses(module, run, value, number(-1), number(shape), number(_STEPS))
    for size in ([_STEPS], _STEPS - 1, -1):
        refuses(module, run, value, number(-1), number(-1), number(size))
    return results


def empty(module: ModuleType, dtype: str) -> list[Tensor]:
    """Products without columns and without an inner dimension, and a sum of one term."""
    raw = module.raw_ops

    @in_graph(module, input_signature=[module.TensorSpec((None, None), dtype) for _ in range(3)])
    def summed(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < 3,
            lambda step, total: (step + 1, total + module.matmul(left, right, transpose_a=True)),
            (0, total),
        )[1]

    @in_graph(module, input_signature=[module.TensorSpec((None, None), dtype) for _ in range(3)])
    def inner(start: Tensor, left: Tensor, right: Tensor) -> Tensor:
        def product() -> Tensor:
            return module.matmul(left, right, transpose_a=True, transpose_b=True)

        return module.while_loop(
            lambda step, _: step < 2,
            lambda step, state: (step + 1, module.tanh(product()) + state),
            (0, start),
        )[1]

    @in_graph(module)
    def alone(start: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < 3,
            lambda step, state: (step + 1, raw.AddN(inputs=[state])),
            (0, start),
        )[1]

    draw = functools.partial(float64.draw_as, module, dtype)
    return [
        summed(draw((4, 2), 1), draw((4, 0), 2), draw((2, 0), 3)),
        summed(draw((4, 2), 1), draw((4, 3), 2), draw((2, 3), 3)),
        inner(draw((3, 4), 1), draw((0, 3), 2), draw((4, 0), 3)),
        inner(draw((3, 4), 1), draw((2, 3), 2), draw((4, 2), 3)),
        alone(draw((2, 2), 1)),
    ]


def extended(module: ModuleType, dtype: str) -> list[Any]:
    """A session whose graph grows after a function with a loop has run. The functions that the
    library adds do not grow in number."""
    old = module.compat.v1
    draws = np.random.default_rng(1).standard_normal((2, 2))
    with module.Graph().as_default(), old.Session() as session:

        @in_graph(module)
        def looped(value: Tensor) -> Tensor:
            return module.while_loop(
                lambda step, _: step < 3,
                lambda step, state: (step + 1, module.tanh(state)),
                (0, value),
            )[1]

        value = old.placeholder(dtype, (2, 2))
        options = old.RunOptions(output_partition_graphs=True)
        results, functions = [], []
        output = module.while_loop(
            lambda step, _: step < 3,
            lambda step, state: (step + 1, looped(state * 0.5)),
            (0, looped(value)),
        )[1]
        for _ in range(3):
            metadata = old.RunMetadata()
            results.append(session.run(output, {value: draws}, options, metadata))
            functions.append(len(metadata.partition_graphs[0].library.function))
            output += 1
        return [*results, functions[1:] == functions[:-1]]


def last_one(module: ModuleType, dtype: str) -> list[Tensor]:
    """Of what takes the place of one item again and again only the last one is kept."""

    @in_graph(module)
    def run(start: Tensor, times: Tensor) -> list[Tensor]:
        array = module.TensorArray(dtype, size=2, element_shape=start.shape)
        _, last, array = module.while_loop(
            lambda step, *_: step < times,
            lambda step, state, array: (step + 1, state * 0.5 + start, array.write(1, state)),
            (0, start, array.write(0, start)),
        )
        return [last, array.stack()]

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    def grown(start: Tensor, times: Tensor) -> bool:
        before = peak()
        run(start, times)
        return peak() - before > _MIB

    start = float64.draw_as(module, dtype, (2**14,), 1)
    results = [result for times in (1, 2, 5) for result in run(start, module.constant(times))]
    return [*results, module.constant(grown(start, module.constant(8000)))]


def kept(module: ModuleType, dtype: str) -> list[Tensor]:
    """One item of a list that is kept keeps no others in memory."""
    start = float64.draw_as(module, dtype, (2**14,), 1)
    variable = module.Variable(start)

    @in_graph(module)
    def run(times: Tensor) -> None:
        array = module.TensorArray(dtype, times, element_shape=start.shape)
        array = module.while_loop(
            lambda step, *_: step < times,
            lambda step, state, array: (step + 1, state * 0.5 + start, array.write(step, state)),
            (0, start, array),
        )[2]
        variable.assign(array.read(times - 1))

    def grown() -> bool:
        ctypes.CDLL(None).malloc_trim(0)
        return resident() - before > _MIB * 2**20

    before = 0
    run(module.constant(2))
    grown()
    before = resident()
    run(module.constant(4000))
    # A thread may still hold the list for a moment.
    ends = time.monotonic() + 10
    while grown() and time.monotonic() < ends:
        time.sleep(0.1)
    return [variable, module.constant(grown())]


def constant(module: ModuleType, dtype: str) -> list[Tensor]:
    """A loop of constants runs at each execution, but not where its branch is not taken."""

    def looped() -> Tensor:
        return module.while_loop(
            lambda step, _: step < _STEPS,
            lambda step, state: (step + 1, module.tanh(state)),
            (0, module.ones((2, 2), dtype)),
        )[1]

    @in_graph(module)
    def run(value: Tensor, taken: Tensor) -> Tensor:
        return value + looped() + module.cond(taken, looped, lambda: value)

    value = float64.draw_as(module, dtype, (2, 2), 1)
    return [run(value, module.constant(taken)) for taken in (False, False, True)]


def pruned(module: ModuleType, dtype: str) -> list[Any]:
    """A session whose signatures have graphs of their own; some of them take the original way."""
    old = module.compat.v1
    config = old.ConfigProto(graph_options=old.GraphOptions(place_pruned_graph=True))
    with module.Graph().as_default(), old.Session(config=config) as session:
        variable = old.get_variable("read", (4,), dtype, old.ones_initializer(), use_resource=True)
        times = old.placeholder("int32", ())
        other_value = times + 1
        _, last = module.while_loop(
            lambda step, _: step < times,
            lambda step, state: (step + 1, state * 0.5 + variable),
            (0, module.zeros(4, dtype)),
        )
        session.run(old.global_variables_initializer())
        return [
            session.run(outputs, {times: number})[0]
            for number in (2, 0)
            for outputs in (last, [last, other_value])
        ]


def penalised(module: ModuleType, dtype: str) -> list[Tensor]:
    """A gradient of a gradient."""
    draw = functools.partial(float64.draw_as, module, dtype)
    weight = module.Variable(draw((6, 6), 2))

    @in_graph(module)
    def run(inputs: Tensor) -> list[Tensor]:
        with module.GradientTape() as outer:
            with module.GradientTape() as inner:
                inner.watch(inputs)
                _, last = module.while_loop(
                    lambda step, _: step < 4,
                    lambda step, state: (step + 1, module.tanh(state @ weight + inputs)),
                    (0, inputs),
                )
                loss = module.reduce_sum(last * last)
            slope = inner.gradient(loss, inputs)
            penalty = module.reduce_sum(slope * slope)
        return [last, slope, outer.gradient(penalty, weight)]

    return list(run(draw((3, 6), 1)))


def infinite(module: ModuleType, dtype: str) -> list[Tensor]:
    """What comes back to ReLU is multiplied by zero where it was off: infinite, it is no number."""
    off_and_on = module.constant([-1.0, 2.0, -3.0], dtype)

    @in_graph(module)
    def run(start: Tensor, back: Tensor) -> list[Tensor]:
        gradients = []
        for turned_off in (module.nn.relu, module.nn.relu6):
            with module.GradientTape() as tape:
                tape.watch(start)
                last = module.while_loop(
                    lambda step, _: step < 2,
                    lambda step, state, off=turned_off: (step + 1, off(state + off_and_on)),
                    (0, start),
                )[1]
            gradients.append(tape.gradient(last, start, output_gradients=back))
        return [module.math.is_nan(gradient) for gradient in gradients]

    return list(run(module.zeros((3,), dtype), module.constant([np.inf, 1.0, np.nan], dtype)))


def dropped(module: ModuleType, dtype: str) -> list[Tensor]:
    """Functions whose loops take their original way, and that are gone, leave no memory behind."""

    def once() -> None:
        @in_graph(module)
        def run(state: Tensor, count: Tensor) -> Tensor:
            def body(number: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
                return number + 1, module.tanh(module.matmul(state, state))

            return module.while_loop(lambda number, _: number < count, body, (0, state))[1]

        run(module.ones((4, 4), dtype), module.constant(0))

    taken = []
    for _ in range(2):  # The first ones make room for the others.
        for _ in range(50):
            once()
        gc.collect()
        taken.append(resident())
    return [module.constant(taken[1] - taken[0] < 12e6)]


def unused(module: ModuleType, dtype: str) -> list[Tensor]:
    """What no plan is for is of no matter where nobody uses it: `odd` broadcasts in three axes."""
    row, column = (float64.draw_as(module, dtype, shape, 4) for shape in ((2, 1, 3), (1, 4, 1)))

    @in_graph(module)
    def run(start: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, *_: step < 5,
            lambda step, state, odd: (
                step + 1,
                module.tanh(state) + start,
                odd * state[0, 0] + row * column,
            ),
            (0, start, row + column),
        )[1]

    return [run(float64.draw_as(module, dtype, (3, 6), 1))]


def in_turn(module: ModuleType, dtype: str) -> list[Any]:
    """One session, of whose loops now these and now those outputs are used."""
    draws = [np.asarray(float64.draw_as(module, dtype, shape, 2)) for shape in ((4, 6), (6, 6))]
    old = module.compat.v1
    with module.Graph().as_default(), old.Session() as session:
        inputs, weight = (old.placeholder(dtype, draw.shape) for draw in draws)
        wrote = module.TensorArray(dtype, size=5, element_shape=inputs.shape)
        _, last, wrote = module.while_loop(
            lambda step, *_: step < 5,
            lambda step, state, wrote: (
                step + 1,
                module.tanh(state @ weight + inputs),
                wrote.write(step, state),
            ),
            (0, inputs, wrote),
        )
        stacked = wrote.stack()
        loss = module.reduce_sum(last * last) + module.reduce_sum(stacked)
        into, of = old.gradients(loss, [inputs, weight])
        fed = dict(zip((inputs, weight), draws, strict=True))
        turns = ([of], [into], [last], [stacked], [into, of, last, stacked], [of])
        return [result for turn in turns for result in session.run(turn, fed)]


def shared(module: ModuleType, dtype: str) -> list[Tensor]:
    """Enough rows for three threads, too few for nine, which share columns; numbers of rows and
    columns end no vector."""
    with float64.use_float_type(module, dtype):
        layer = module.keras.layers.GRU(65, return_sequences=True)
        layer.build((None, None, 5))
    shapes = [tuple(weight.shape) for weight in layer.weights]
    draw = functools.partial(float64.draw_as, module, dtype)
    layer.set_weights([0.3 * np.asarray(draw(shape, 2)) for shape in shapes])

    @in_graph(module)
    def run(inputs: Tensor) -> list[Tensor]:
        with module.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
            loss = module.reduce_sum(module.sin(outputs) * outputs)
        return [outputs, *tape.gradient(loss, [inputs, *layer.trainable_variables])]

    return list(run(draw((257, 6, 5), 1)))


def lent(module: ModuleType, dtype: str) -> list[Any]:
    """On threads that are lent to one run."""
    draws = [
        np.asarray(float64.draw_as(module, dtype, shape, 2)) for shape in ((257, 65), (65, 65))
    ]
    draws[1] = 0.05 * draws[1]
    with held.lent(module, draws) as ((inputs, weight), run):
        _, last = module.while_loop(
            lambda step, _: step < 20,
            lambda step, state: (step + 1, module.tanh(state @ weight + inputs)),
            (0, inputs),
        )
        return [run(last) for _ in range(20)]


def compiled(module: ModuleType, dtype: str) -> list[Tensor]:
    """XLA's loops are XLA's."""
    draw = functools.partial(float64.draw_as, module, dtype)
    weight = draw((6, 6), 2)

    @in_graph(module, jit_compile=True)
    def run(inputs: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < 4,
            lambda step, state: (step + 1, module.tanh(state @ weight)),
            (0, inputs),
        )[1]

    return [run(draw((3, 6), 1))]


def saved(module: ModuleType, dtype: str) -> list[Tensor]:
    class Module(module.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.weight = module.Variable(float64.draw_as(module, dtype, (6, 6), 2))

        @in_graph(module, input_signature=[module.TensorSpec((None, 6), dtype)])
        def run(self, inputs: Tensor) -> Tensor:
            return module.while_loop(
                lambda step, _: step < 4,
                lambda step, state: (step + 1, module.tanh(state @ self.weight)),
                (0, inputs),
            )[1]

    return held.saved(module, Module(), float64.draw_as(module, dtype, (3, 6), 1))


def cases() -> Mapping[str, Case]:
    more: Mapping[str, float64.Program] = {
        "fitted": fitted,
        "fitted, steps at once": functools.partial(fitted, steps_per_execution=3),
        "trained for long": functools.partial(loops.train_layer, steps=500),
        "refused": refused,
        "mismatched": mismatched,
        "beyond": beyond,
        "joined": joined,
        "shaped": shaped,
        "reduced": reduced,
        "ranks": ranks,
        "summed slices": summed_slices,
        "typed": typed,
        "merged": merged,
        "empty": empty,
        "extended": extended,
        "last one": last_one,
        "kept": kept,
        "constant": constant,
        "pruned": pruned,
        "infinite": infinite,
        "dropped": dropped,
        "unused": unused,
        "in turn": in_turn,
        "shared": shared,
        "lent": lent,
        "penalised": penalised,
        "compiled": compiled,
        "saved": saved,
    }
    return {**loops.cases(), **{name: float64.create_case(value) for name, value in more.items()}}


if __name__ == "__main__":
    held.hold("loops", cases())
