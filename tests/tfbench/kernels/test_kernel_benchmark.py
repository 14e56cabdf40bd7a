"""benchmarks/kernels/compare.py: its shapes as call sites."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import ModuleType

import pytest

from tfcore.settings import ROOT

FOLDER = ROOT / "benchmarks" / "kernels"


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel_benchmark", FOLDER / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # (dataclasses look there)
    spec.loader.exec_module(module)
    return module


def test_every_shape_is_a_call_site(compare: ModuleType) -> None:
    shapes = compare.read_shapes(compare.SHAPES)
    sites = [shape.create_site() for shape in shapes]
    assert {site.op for site in sites} == {
        *("MatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    }
    for shape, site in zip(shapes, sites, strict=True):
        gradient = site.op.startswith("Conv2DBackprop")
        assert len(site.inputs) == 2 + gradient
        assert sum(operand.values is not None for operand in site.inputs) == gradient
        assert shape.operations > 0
    assert len({(site.op, site.shapes, site.details) for site in sites}) == len(sites)


def test_a_matrix_product_counts_its_operations(compare: ModuleType) -> None:
    shape = compare.Shape(op="MatMul", rows=3, depth=5, columns=7, turned=1)
    assert shape.operations == 2 * 3 * 5 * 7
    left, right = (operand.shape for operand in shape.create_site().inputs)
    assert (left, right) == ((5, 3), (5, 7))


def test_a_gradient_of_inputs_has_their_sizes(compare: ModuleType) -> None:
    shape = compare.Shape(
        op="Conv2DBackpropInput", rows=2, depth=8, columns=3, filters=5, height=3, width=1
    )
    sizes, filters, outputs = shape.create_site().inputs
    assert sizes.values == (2, 8, 8, 3)
    assert filters.shape == (3, 1, 3, 5)
    assert outputs.shape == (2, 8, 8, 5)
    assert shape.operations == 2 * 3 * math.prod(outputs.shape) * 3
