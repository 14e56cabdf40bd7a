"""Profile a program by call site. A call site is an op with its types, attributes and inputs.

Runs inside an arm as `ARM_PYTHON -P -m tfbench.inside.call_sites REQUEST ANSWER`. REQUEST is a JSON
file {"workload": …, "seed": …, "vcpus": […], "steps": n}. ANSWER is a JSON file, too: see
`profile_program`, or {"problem": …} for a user's file that cannot be trained.

The profiler records the shapes of an op's inputs. Everything else comes from the executed graph,
which TensorFlow returns when a function is first called while graphs are collected: after Grappler,
oneDNN's rewriting and the lowering of loops, with the node names that the profiler records.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tfbench.inside import profiling, worker
from tfbench.inside.profiling import Execution
from tfbench.inside.step_parts import compute_step_parts

Node: TypeAlias = Any
"""A NodeDef, a protocol buffer of the arm's release."""

OPAQUE = "opaque"
"""The dtype of an input that cannot be created again, such as an iterator or a list of tensors."""
MOST_VALUES = 16
"""Maximum number of values of a constant integer input; a larger one is data."""
WARM_UP_STEPS = 5
_SHAPED = re.compile(r"(\w+)\[([\d,]*)\]")
_SCALAR = re.compile(r"^\w+: ")
"""The field name before a value that is not a list."""
_PASSING = {"Identity", "Enter", "Switch", "Merge", "Exit", "NextIteration"}
"""Ops that pass on an input: Merge passes on the available one, the others the first. Following
them leads back to a constant or a variable."""
_NAMES = {"seed", "seed2", "shared_name", "container"}
"""Attributes that do not affect what is computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSiteInput:
    """An input of a call site.

    `dtype` is TensorFlow's name (float, int32, …); for a variable, the dtype of its contents.
    `values` are those of a constant small integer input.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    variable: bool = False
    values: tuple[int, ...] | None = None

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return f"variable {text}" if self.variable else text


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSite:
    """An op as a program uses it.

    `types` are its type attributes as numbers of types.proto, `attributes` the others that
    matter as a protocol buffer's text ("b: true").
    """

    op: str
    types: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[CallSiteInput, ...] = ()

    @property
    def shapes(self) -> str:
        return ";".join(map(str, self.inputs))

    @property
    def details(self) -> str:
        """Return the attributes and the constant inputs on one line."""
        constants = (
            f"input {number} is {list(operand.values)}"
            for number, operand in enumerate(self.inputs)
            if operand.values is not None
        )
        attributes = (
            f"{name}={_SCALAR.sub('', text)}" for name, text in sorted(self.attributes.items())
        )
        return ", ".join((*attributes, *constants))


def parse_call_site(fields: Mapping[str, Any]) -> CallSite:
    """Parse a call site from its JSON form.

    Raises TypeError or KeyError if the form is wrong.
    """
    return CallSite(
        op=fields["op"],
        types={name: tuple(numbers) for name, numbers in fields["types"].items()},
        attributes=dict(fields["attributes"]),
        inputs=tuple(
            CallSiteInput(
                dtype=operand["dtype"],
                shape=tuple(operand["shape"]),
                variable=operand["variable"],
                values=None if operand["values"] is None else tuple(operand["values"]),
            )
            for operand in fields["inputs"]
        ),
    )


def profile_program(request: Mapping[str, Any]) -> dict[str, Any]:
    """Profile a program's steps.

    Returns the seconds per step without the profiler and their parts (see `StepParts`), the
    seconds per step of each op type with the profiler, and for each call site its calls and
    seconds per step.

    A call site's seconds are its number of calls times their median, so that one interruption by
    another process does not make an op look slow.
    """
    trainer, facts = worker.load(request)
    tf, step = importlib.import_module("tensorflow"), trainer.phases[trainer.phase]
    graph = collect_nodes(step)
    for _ in range(WARM_UP_STEPS):
        float(step())
    steps, walls, cpus = int(request["steps"]), [], []
    for _ in range(steps):
        began, ran = time.perf_counter(), time.process_time()
        float(step())
        cpus.append(time.process_time() - ran)
        walls.append(time.perf_counter() - began)
    executions = profiling.trace_steps(tf, step, steps, detailed=True)
    op_s: dict[str, float] = defaultdict(float)
    for execution in executions:
        op_s[execution.op] += execution.seconds / steps
    step_s, cpu_s = statistics.median(walls), statistics.median(cpus)
    return {
        "steps": steps,
        "step_s": step_s,
        "parts": asdict(compute_step_parts(executions, step_s=step_s, cpu_s=cpu_s)),
        "op_s": dict(op_s),
        "places": list(summarise_call_sites(executions, graph, steps)),
        "tensorflow": facts["tensorflow"],
        "parameters": facts["parameters"],
    }


def collect_nodes(step: worker.Step) -> dict[str, Node]:
    """Run the first step and return the nodes of the graphs that it executes, by name.

    The step must not have run before.
    """
    context = importlib.import_module("tensorflow.python.eager.context").context()
    context.ensure_initialized()
    context.enable_graph_collection()
    try:
        float(step())
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    graphs = [graph for row in metadata.function_graphs for graph in row.partition_graphs]
    return merge_nodes(node for graph in graphs for node in graph.node)


def merge_nodes(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return the nodes of several graphs by name.

    Excludes names that different nodes share: the profiler does not report which of them ran.
    """
    merged: dict[str, Node] = {}
    ambiguous = set()
    for node in nodes:
        if _build_node_key(merged.setdefault(node.name, node)) != _build_node_key(node):
            ambiguous.add(node.name)
    return {name: node for name, node in merged.items() if name not in ambiguous}


def _build_node_key(node: Node) -> tuple[object, ...]:
    """Return a key of what a node computes: its op, data inputs and attributes.

    Excludes its device and control inputs.
    """
    return node.op, _list_data_inputs(node), {name: node.attr[name] for name in node.attr}


def _list_data_inputs(node: Node) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def summarise_call_sites(
    executions: Iterable[Execution], graph: Mapping[str, Node], steps: int
) -> Iterator[dict[str, Any]]:
    """Yield the call sites of the executed ops, each with calls and seconds per step."""
    node_seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for execution in executions:
        if execution.node in graph and graph[execution.node].op == execution.op:
            node_seconds[execution.node, execution.shapes].append(execution.seconds)
    site_seconds: dict[str, list[float]] = defaultdict(list)
    for (name, shapes), seconds in node_seconds.items():
        fields = asdict(build_call_site(graph[name], shapes, graph))
        site_seconds[json.dumps(fields, sort_keys=True)] += seconds
    for text, seconds in site_seconds.items():
        yield {
            "place": json.loads(text),
            "calls": len(seconds) / steps,
            "seconds": statistics.median(seconds) * len(seconds) / steps,
        }


def build_call_site(node: Node, shapes: str, graph: Mapping[str, Node]) -> CallSite:
    """Build the call site of a node of an executed graph, with inputs of the traced shapes."""
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    text_format = importlib.import_module("google.protobuf.text_format")
    definition = registry.get(node.op)
    types: dict[str, tuple[int, ...]] = {}
    attributes: dict[str, str] = {}
    for attribute in definition.attr if definition is not None else ():
        name = attribute.name
        if name not in node.attr or name in _NAMES:
            continue
        value = node.attr[name]
        if attribute.type == "type":
            types[name] = (int(value.type),)
        elif attribute.type == "list(type)":
            types[name] = tuple(map(int, value.list.type))
        else:
            attributes[name] = text_format.MessageToString(value, as_one_line=True)
    texts = shapes.removeprefix("(").removesuffix(")").split(";") if shapes else []
    return CallSite(
        op=node.op,
        types=types,
        attributes=attributes,
        inputs=tuple(
            build_input(text, source, graph)
            for text, source in zip(texts, _list_data_inputs(node), strict=False)
        ),
    )


def build_input(text: str, source: str, graph: Mapping[str, Node]) -> CallSiteInput:
    """Build a call site's input from its traced text and its source in the graph."""
    match, origin = _SHAPED.fullmatch(text), find_origin(source, graph)
    if match is None:
        return CallSiteInput(dtype=OPAQUE) if origin is None else build_variable_input(origin)
    shape = tuple(int(number) for number in match[2].split(",") if number)
    return CallSiteInput(dtype=match[1], shape=shape, values=read_constant(match[1], origin))


def find_origin(source: str, graph: Mapping[str, Node]) -> Node | None:
    """Return the node whose first output is this tensor, directly or through ops that pass it on.

    Returns None if the tensor may come from several nodes, as a loop counter does, if it is another
    output of its node, or if its node is not in the graph.
    """
    origins: dict[str, Node] = {}
    visited, pending = set(), [source]
    while pending:
        tensor = pending.pop()
        if tensor in visited:
            continue
        visited.add(tensor)
        name, _, output = tensor.partition(":")
        node = graph.get(name)
        if node is None or (output not in {"", "0"} and node.op != "Switch"):
            return None
        if node.op in _PASSING:
            pending += (
                _list_data_inputs(node) if node.op == "Merge" else _list_data_inputs(node)[:1]
            )
        else:
            origins[name] = node
    return next(iter(origins.values())) if len(origins) == 1 else None


def build_variable_input(node: Node) -> CallSiteInput:
    """Build the input of a variable's handle.

    Its dtype and shape come from VarHandleOp or from the argument of a function. Returns an
    opaque input if they are not known.
    """
    types = importlib.import_module("tensorflow.core.framework.types_pb2").DataType
    if node.op == "VarHandleOp":
        dtype, shape = node.attr["dtype"].type, node.attr["shape"].shape
    elif "_handle_dtypes" in node.attr and len(node.attr["_handle_dtypes"].list.type) == 1:
        dtype = node.attr["_handle_dtypes"].list.type[0]
        shape = node.attr["_handle_shapes"].list.shape[0]
    else:
        return CallSiteInput(dtype=OPAQUE)
    sizes = tuple(int(row.size) for row in shape.dim)
    if shape.unknown_rank or any(size < 0 for size in sizes):
        return CallSiteInput(dtype=OPAQUE)
    return CallSiteInput(dtype=types.Name(dtype)[3:].lower(), shape=sizes, variable=True)


def read_constant(dtype: str, node: Node | None) -> tuple[int, ...] | None:
    """Return the values of a small integer constant, such as a shape, a permutation or an axis.

    Returns None for any other input.
    """
    if node is None or node.op != "Const" or dtype not in {"int32", "int64"}:
        return None
    tensor = importlib.import_module("tensorflow").make_ndarray(node.attr["value"].tensor)
    return tuple(map(int, tensor.ravel())) if tensor.size <= MOST_VALUES else None


def main(request: Path, answer: Path) -> None:
    fields = json.loads(request.read_text(encoding="utf-8"))
    try:
        result = profile_program(fields)
    except (Exception, SystemExit) as error:
        # NumPy is imported after the affinity is set.
        from tfbench.inside.programs import format_error
        from tfbench.inside.workloads import PROGRAM

        if PROGRAM not in os.environ:
            raise
        result = {"problem": format_error(error, Path(os.environ[PROGRAM]))}
    answer.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
