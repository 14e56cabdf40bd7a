"""Where a program's time goes, call site by call site: an op with its types, attributes and inputs.

Runs inside an arm as `ARM_PYTHON -P -m tfbench.inside.call_sites REQUEST ANSWER`. REQUEST is a JSON
file {"workload": …, "seed": …, "vcpus": […], "steps": n}, and so is ANSWER: see `examined`, or
{"problem": …} for a user's file that cannot be trained.

The profiler knows the shapes of an op's inputs. Everything else is in the graph that is executed,
which TensorFlow hands out when a function is first called while graphs are collected: after
Grappler, oneDNN's rewriting and the lowering of loops, with the node names that the profiler says.
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
from tfbench.inside.step_parts import parts_of

Node: TypeAlias = Any
"""A NodeDef, a protocol buffer of the arm's release."""

OPAQUE = "opaque"
"""The dtype of an input that cannot be made anew, such as an iterator or a list of tensors."""
MOST_VALUES = 16
"""A constant integer input with more elements is data."""
WARM_UP_STEPS = 5
_SHAPED = re.compile(r"(\w+)\[([\d,]*)\]")
_SCALAR = re.compile(r"^\w+: ")
"""What stands before a value that is no list: the name of its field."""
_PASSING = {"Identity", "Enter", "Switch", "Merge", "Exit", "NextIteration"}
"""They hand on an input, Merge whichever there is, the others their first: the way back to a
constant or a variable."""
_NAMES = {"seed", "seed2", "shared_name", "container"}
"""Attributes that name a thing and not what is computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSiteInput:
    """`dtype` as TensorFlow writes it (float, int32, …), that of its contents for a variable.
    `values` are those of a constant small integer input."""

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

    `types` are its type attributes as numbers of types.proto, `attributes` the others that matter
    as a protocol buffer's text ("b: true").
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
        """Attributes and constant inputs on a line."""
        constants = (
            f"input {number} is {list(each.values)}"
            for number, each in enumerate(self.inputs)
            if each.values is not None
        )
        given = (
            f"{name}={_SCALAR.sub('', text)}" for name, text in sorted(self.attributes.items())
        )
        return ", ".join((*given, *constants))


def call_site_of(fields: Mapping[str, Any]) -> CallSite:
    """A call site from its JSON form. Raises TypeError, KeyError."""
    return CallSite(
        op=fields["op"],
        types={name: tuple(numbers) for name, numbers in fields["types"].items()},
        attributes=dict(fields["attributes"]),
        inputs=tuple(
            CallSiteInput(
                dtype=each["dtype"],
                shape=tuple(each["shape"]),
                variable=each["variable"],
                values=None if each["values"] is None else tuple(each["values"]),
            )
            for each in fields["inputs"]
        ),
    )


def examined(request: Mapping[str, Any]) -> dict[str, Any]:
    """A program's steps, profiled: seconds per step without the profiler, and what they are made
    of; per op type with it, and for each call site its calls and seconds per step.

    A call site's seconds are its calls times their median: so another process that took the CPU
    once does not make an op look slow.
    """
    trainer, facts = worker.load(request)
    tf, step = importlib.import_module("tensorflow"), trainer.phases[trainer.phase]
    graph = collected(step)
    for _ in range(WARM_UP_STEPS):
        float(step())
    steps, walls, cpus = int(request["steps"]), [], []
    for _ in range(steps):
        began, ran = time.perf_counter(), time.process_time()
        float(step())
        cpus.append(time.process_time() - ran)
        walls.append(time.perf_counter() - began)
    executions = profiling.observed(tf, step, steps, detailed=True)
    op_s: dict[str, float] = defaultdict(float)
    for each in executions:
        op_s[each.op] += each.seconds / steps
    step_s, cpu_s = statistics.median(walls), statistics.median(cpus)
    return {
        "steps": steps,
        "step_s": step_s,
        "parts": asdict(parts_of(executions, step_s=step_s, cpu_s=cpu_s)),
        "op_s": dict(op_s),
        "places": list(weighed(executions, graph, steps)),
        "tensorflow": facts["tensorflow"],
        "parameters": facts["parameters"],
    }


def collected(step: worker.Step) -> dict[str, Node]:
    """The nodes of the graphs that a step executes, by name. It must be the first step."""
    context = importlib.import_module("tensorflow.python.eager.context").context()
    context.ensure_initialized()
    context.enable_graph_collection()
    try:
        float(step())
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    graphs = [graph for row in metadata.function_graphs for graph in row.partition_graphs]
    return united(node for graph in graphs for node in graph.node)


def united(nodes: Iterable[Node]) -> dict[str, Node]:
    """By name, without the names that nodes of several graphs share and that differ: the profiler
    does not say which of them it saw."""
    found: dict[str, Node] = {}
    unclear = set()
    for node in nodes:
        if _meaning(found.setdefault(node.name, node)) != _meaning(node):
            unclear.add(node.name)
    return {name: node for name, node in found.items() if name not in unclear}


def _meaning(node: Node) -> tuple[object, ...]:
    """What a node does to what, without its device and what it waits for."""
    return node.op, _data(node), {name: node.attr[name] for name in node.attr}


def _data(node: Node) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def weighed(
    executions: Iterable[Execution], graph: Mapping[str, Node], steps: int
) -> Iterator[dict[str, Any]]:
    """The call sites of the executed ops, each with calls and seconds per step."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in executions:
        if each.node in graph and graph[each.node].op == each.op:
            taken[each.node, each.shapes].append(each.seconds)
    places: dict[str, list[float]] = defaultdict(list)
    for (name, shapes), seconds in taken.items():
        found = asdict(site(graph[name], shapes, graph))
        places[json.dumps(found, sort_keys=True)] += seconds
    for text, seconds in places.items():
        yield {
            "place": json.loads(text),
            "calls": len(seconds) / steps,
            "seconds": statistics.median(seconds) * len(seconds) / steps,
        }


def site(node: Node, shapes: str, graph: Mapping[str, Node]) -> CallSite:
    """What a node of an executed graph does, with inputs of the traced shapes."""
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
            given(text, source, graph) for text, source in zip(texts, _data(node), strict=False)
        ),
    )


def given(text: str, source: str, graph: Mapping[str, Node]) -> CallSiteInput:
    """An input as the trace writes it, and what the graph knows of where it comes from."""
    found, origin = _SHAPED.fullmatch(text), originating(source, graph)
    if found is None:
        return CallSiteInput(dtype=OPAQUE) if origin is None else variable(origin)
    shape = tuple(int(number) for number in found[2].split(",") if number)
    return CallSiteInput(dtype=found[1], shape=shape, values=constant(found[1], origin))


def originating(source: str, graph: Mapping[str, Node]) -> Node | None:
    """The one node whose first output a tensor is, handed on or not; None where it may be that of
    several, as in a loop that counts, or another output."""
    origins: dict[str, Node] = {}
    seen, left = set(), [source]
    while left:
        here = left.pop()
        if here in seen:
            continue
        seen.add(here)
        name, _, output = here.partition(":")
        node = graph.get(name)
        if node is None or (output not in {"", "0"} and node.op != "Switch"):
            return None
        if node.op in _PASSING:
            left += _data(node) if node.op == "Merge" else _data(node)[:1]
        else:
            origins[name] = node
    return next(iter(origins.values())) if len(origins) == 1 else None


def variable(node: Node) -> CallSiteInput:
    """What the variable of a handle holds, from VarHandleOp or the argument of a function."""
    types = importlib.import_module("tensorflow.core.framework.types_pb2").DataType
    if node.op == "VarHandleOp":
        dtype, shape = node.attr["dtype"].type, node.attr["shape"].shape
    elif "_handle_dtypes" in node.attr and len(node.attr["_handle_dtypes"].list.type) == 1:
        dtype = node.attr["_handle_dtypes"].list.type[0]
        shape = node.attr["_handle_shapes"].list.shape[0]
    else:
        return CallSiteInput(dtype=OPAQUE)
    sizes = tuple(int(row.size) for row in shape.dim)
    if shape.unknown_rank or any(each < 0 for each in sizes):
        return CallSiteInput(dtype=OPAQUE)
    return CallSiteInput(dtype=types.Name(dtype)[3:].lower(), shape=sizes, variable=True)


def constant(dtype: str, node: Node | None) -> tuple[int, ...] | None:
    """The values of a small integer constant, such as a shape, a permutation or an axis."""
    if node is None or node.op != "Const" or dtype not in {"int32", "int64"}:
        return None
    tensor = importlib.import_module("tensorflow").make_ndarray(node.attr["value"].tensor)
    return tuple(map(int, tensor.ravel())) if tensor.size <= MOST_VALUES else None


def main(request: Path, answer: Path) -> None:
    fields = json.loads(request.read_text(encoding="utf-8"))
    try:
        found = examined(fields)
    except (Exception, SystemExit) as error:
        # NumPy is imported after the affinity is set.
        from tfbench.inside.programs import error_line  # noqa: PLC0415
        from tfbench.inside.workloads import PROGRAM  # noqa: PLC0415

        if PROGRAM not in os.environ:
            raise
        found = {"problem": error_line(error, Path(os.environ[PROGRAM]))}
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
