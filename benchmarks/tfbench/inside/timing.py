"""A process that times single ops at a program's call sites.

Started as `ARM_PYTHON -P -m tfbench.inside.timing`; it uses the protocol of `worker`:

    {"do": "load", "vcpus": […]}                        → facts of the environment
    {"do": "prepare", "place": call site, "copies": n}  → {"reason": "", "call_s": …}, or only
                                                          {"reason": …} if it fails
    {"do": "time", "calls": n}                          → {"wall_s": …, "cpu_s": …} of n calls
    {"do": "quit"}                                      → {}

A call executes `copies` copies of the op, one after the other (a chain of control edges), in one
run of a session. So the start of the run, about 10 us of CPU time, does not dominate an op of 5 us.
The executor's overhead of about 0.3 us per op remains, as in a program. All copies read the same
inputs, so inputs that fit into a cache are in the cache, in both arms alike but unlike in the
program. An op on a variable may slow down later ops, so an update of rows is timed with a read.

Nothing rewrites the graph: Grappler and TensorFlow's older optimizer are off, and the caller sets
TF_ENABLE_ONEDNN_OPTS=0, so that the op's own kernel runs.
"""

from __future__ import annotations

import importlib
import math
import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfbench.inside import worker
from tfbench.inside.call_sites import OPAQUE, CallSite, CallSiteInput, parse_call_site

TensorFlow: TypeAlias = Any
Answer: TypeAlias = dict[str, Any]

WARM_UP_CALLS = 3
_DEVICE = "/device:CPU:0"
_POSITIVE = {"Sqrt", "Rsqrt", "Log", "Log1p", "Pow", "Lgamma", "SqrtGrad", "RsqrtGrad"}
"""Ops whose inputs are drawn above 0, because they would compute NaN elsewhere."""
UPDATING_ROWS = {
    f"ResourceScatter{operation}"
    for operation in ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max")
}
"""Ops that update rows of a variable. The next read may have to copy the variable, so a read
follows each of them, as in an optimizer's step."""
_INDEXING = {"Gather", "GatherV2", "ResourceGather", *UPDATING_ROWS}
"""Ops whose integers are indices of rows of the first input."""
BY_ROWS = "_by_rows"
"""Attribute of a call site: the program also reads or updates rows of the variable. After that
stock TensorFlow copies the variable before every update of all of it."""
_DIVIDING = {"Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"}
"""Ops whose integers are drawn above 0."""
_SHAPING = {
    *("shape", "dims", "size", "size_splits", "begin", "end", "strides", "multiples", "paddings"),
    *("input_sizes", "filter_sizes", "axis", "dim", "split_dim", "concat_dim", "dimension", "perm"),
    *("reduction_indices", "num_segments", "start", "limit", "delta", "num", "block_shape"),
    *("crops", "output_shape", "dense_shape", "depth", "k", "num_samples"),
}
"""Names (in an OpDef) of inputs whose values determine the amount of computation or the axis."""
_BLOCK = 1 << 20
"""Elements of a block; a larger input repeats it."""


@dataclass(kw_only=True, slots=True)
class Chain:
    """A chain of copies of one op, with its session."""

    session: Any
    call: Callable[[], Any]

    def time(self, calls: int) -> Answer:
        """Make `calls` calls and return their wall and CPU seconds."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(calls):
            self.call()
        return {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }


def load(request: Mapping[str, Any]) -> Answer:
    """Import TensorFlow on the requested CPUs."""
    os.sched_setaffinity(0, request["vcpus"])
    with worker.pause_garbage_collection():
        tf = importlib.import_module("tensorflow")
    tf.compat.v1.disable_eager_execution()
    return worker.describe_environment(tf)


def build_chain(tf: TensorFlow, site: CallSite, copies: int) -> Chain:
    """Build a chain of copies of a call site's op.

    Raises TensorFlow's error for an op that cannot be executed this way, and ValueError.
    """
    graph = tf.Graph()
    with graph.as_default(), graph.device(_DEVICE):
        inputs, initializers = create_inputs(tf, site)
        tf.import_graph_def(
            _build_copies(tf, site, copies),
            name="",
            input_map={f"input_{number}:0": tensor for number, tensor in enumerate(inputs)},
        )
    options = tf.compat.v1.ConfigProto()
    options.graph_options.optimizer_options.opt_level = -1
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    session = tf.compat.v1.Session(graph=graph, config=options)
    session.run(initializers)
    return Chain(session=session, call=session.make_callable(_name_last_node(site, copies)))


def _name_last_node(site: CallSite, copies: int) -> str:
    return f"{'read' if site.op in UPDATING_ROWS else 'copy'}_{copies - 1}"


def create_inputs(tf: TensorFlow, site: CallSite) -> tuple[list[Any], list[Any]]:
    """Create the op's inputs in the current graph, and the ops that initialise the variables.

    Raises ValueError for an input that cannot be created, and for one that determines what is
    computed but has unknown values: the time of another computation would be meaningless.
    """
    import numpy as np

    # Draw the same numbers in every arm and launch.
    draw = np.random.default_rng(zlib.crc32(f"{site.op} {site.shapes}".encode()))
    tensors, initializers = [], []
    for number, (operand, name) in enumerate(
        zip(site.inputs, list_input_names(site), strict=False)
    ):
        if operand.dtype == OPAQUE:
            raise ValueError(f"input {number} cannot be created")
        if _is_needed(tf, site, operand, name):
            raise ValueError(f"the values of input {number} ({name}) are known only at run time")
        block = tf.constant(draw_contents(tf, site, operand, draw), tf.as_dtype(operand.dtype))
        if not operand.variable and block.shape == operand.shape:
            # oneDNN packs a filter only once if it is a constant, which it is in few programs.
            tensors.append(block if operand.values is not None else tf.identity(block))
            continue
        handle = tf.raw_ops.VarHandleOp(
            dtype=block.dtype, shape=operand.shape, shared_name=f"variable_{number}"
        )
        content = block if block.shape == operand.shape else repeat_block(tf, block, operand.shape)
        initializers.append(tf.raw_ops.AssignVariableOp(resource=handle, value=content))
        if operand.variable:
            tensors.append(handle)
            if BY_ROWS in site.attributes:
                with tf.control_dependencies(initializers[-1:]):
                    initializers.append(_read_first_row(tf, handle, block.dtype))
        else:  # (read once per call: the same memory each time)
            tensors.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=block.dtype))
    return tensors, initializers


def _read_first_row(tf: TensorFlow, handle: Any, dtype: Any) -> Any:
    return tf.raw_ops.ResourceGather(resource=handle, indices=[0], dtype=dtype)


def repeat_block(tf: TensorFlow, block: Any, shape: tuple[int, ...]) -> Any:
    """Repeat a block's elements to fill a shape.

    The graph repeats them, because writing a large constant into it takes longer than most ops.
    """
    size = math.prod(shape)
    flat = tf.reshape(block, [-1])
    return tf.reshape(tf.tile(flat, [-(-size // block.shape.num_elements())])[:size], shape)


def list_input_names(site: CallSite) -> list[str]:
    """Return the name of each input in the op's definition; inputs of a list share a name."""
    names: list[str] = []
    for row in _find_definition(site.op).input_arg:
        count = len(site.types[row.type_list_attr]) if row.type_list_attr else 1
        if row.number_attr:
            count = int(site.attributes[row.number_attr].removeprefix("i: "))
        names += [row.name] * count
    return names


def _is_needed(tf: TensorFlow, site: CallSite, op_input: CallSiteInput, name: str) -> bool:
    """Return whether an input determines the amount of computation, so that it needs real values.

    Among inputs that are not integers only those of Range do: elsewhere a `delta` is a gradient.
    """
    if op_input.values is not None or not math.prod(op_input.shape) or name not in _SHAPING:
        return False
    return site.op == "Range" or tf.as_dtype(op_input.dtype).is_integer


def draw_contents(tf: TensorFlow, site: CallSite, op_input: CallSiteInput, draw: Any) -> Any:
    """Return the contents of an input, or the block that it repeats.

    They are its constants if known, otherwise normal numbers, small integers or booleans.

    Raises ValueError for other types.
    """
    import numpy as np

    dtype = tf.as_dtype(op_input.dtype)
    if op_input.values is not None:
        return np.array(op_input.values, dtype.as_numpy_dtype).reshape(op_input.shape)
    shape = op_input.shape if math.prod(op_input.shape) <= _BLOCK else (_BLOCK,)
    if dtype.is_bool:
        return np.asarray(draw.integers(0, 2, shape)).astype(bool)
    if dtype.is_integer:
        low = 1 if site.op in _DIVIDING else 0
        numbers = draw.integers(low, max(low + 1, _find_upper_bound(site)), shape)
        return np.asarray(numbers).astype(dtype.as_numpy_dtype)
    if dtype.is_floating or dtype.is_complex:
        values = np.asarray(draw.standard_normal(shape)).astype(dtype.as_numpy_dtype)
        return abs(values) + 0.1 if site.op in _POSITIVE else values
    raise ValueError(f"inputs of type {op_input.dtype} cannot be created")


def _find_upper_bound(site: CallSite) -> int:
    """Return the exclusive upper bound of drawn integers, so that indices are in range."""
    shapes = [operand.shape for operand in site.inputs if operand.shape]
    if site.op in _INDEXING and shapes:
        return max(1, shapes[0][0])
    return max(1, min((size for shape in shapes for size in shape), default=2))


def _build_copies(tf: TensorFlow, site: CallSite, copies: int) -> Any:
    """Build a graph of `copies` copies of the op, one after the other, with placeholder inputs."""
    text_format = importlib.import_module("google.protobuf.text_format")
    listed = {row.name for row in _find_definition(site.op).attr if row.type == "list(type)"}
    graph = tf.compat.v1.GraphDef()
    # The types of the placeholders do not matter: each one is replaced.
    for number, operand in enumerate(site.inputs):
        dtype = tf.resource if operand.variable else tf.as_dtype(operand.dtype)
        node = graph.node.add(name=f"input_{number}", op="Placeholder")
        node.attr["dtype"].type = dtype.as_datatype_enum
    last = ""
    for copy in range(copies):
        node = graph.node.add(name=f"copy_{copy}", op=site.op, device=_DEVICE)
        node.input.extend(f"input_{number}" for number in range(len(site.inputs)))
        node.input.extend([f"^{last}"] if last else [])
        last = node.name
        for name, numbers in site.types.items():
            if name in listed:
                node.attr[name].list.type.extend(numbers)
            else:
                node.attr[name].type = numbers[0]
        for name, text in site.attributes.items():
            text_format.Parse(text, node.attr[name])
        if site.op in UPDATING_ROWS:
            last = f"read_{copy}"
            reading = graph.node.add(name=last, op="ReadVariableOp", device=_DEVICE)
            reading.input.extend(["input_0", f"^{node.name}"])
            reading.attr["dtype"].type = site.types["dtype"][0]
    return graph


def _find_definition(op: str) -> Any:
    """Return the definition of an op.

    Raises ValueError if this TensorFlow does not have it.
    """
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    definition = registry.get(op)
    if definition is None:
        raise ValueError(f"this TensorFlow has no op {op}")
    return definition


def prepare_chain(request: Mapping[str, Any]) -> tuple[Chain | None, Answer]:
    """Build the chain of a call site's op and make a few calls.

    Returns None and the reason if that fails.
    """
    tf = importlib.import_module("tensorflow")
    try:
        op_chain = build_chain(tf, parse_call_site(request["place"]), request["copies"])
        op_chain.time(WARM_UP_CALLS)
    except Exception as error:  # noqa: BLE001  (an op that cannot be executed alone is an answer)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, {"reason": lines[0][:200]}
    times = op_chain.time(WARM_UP_CALLS)
    return op_chain, {"reason": "", "call_s": times["wall_s"] / WARM_UP_CALLS}


def handle_request(now: Chain | None, request: Mapping[str, Any]) -> tuple[Chain | None, Answer]:
    """Handle one request; return the chain that is kept and the answer."""
    match request["do"]:
        case "load":
            return now, load(request)
        case "prepare":
            if now is not None:
                now.session.close()
            return prepare_chain(request)
        case "time" if now is not None:
            return now, now.time(request["calls"])
        case "quit":
            return None, {}
        case unexpected:
            raise ValueError(f"cannot handle request {unexpected!r} now")


if __name__ == "__main__":
    worker.main(handle_request)
