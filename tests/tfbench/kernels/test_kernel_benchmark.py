"""benchmarks/kernels: its shapes as call sites, and the cost model fitted to their times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels import fit, shapes
from kernels.shapes import Shape


def test_every_shape_is_a_call_site() -> None:
    models = shapes.read_shapes(fit.FOLDER / "shapes.csv")
    for listed in (models, shapes.draw_shapes()):
        sites = [shape.create_site() for shape in listed]
        assert {site.op for site in sites} == {
            *("MatMul", "BatchMatMulV2", "Einsum"),
            *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
        }
        for shape, site in zip(listed, sites, strict=True):
            gradient = site.op.startswith("Conv2DBackprop")
            assert len(site.inputs) == 2 + gradient
            assert sum(operand.values is not None for operand in site.inputs) == gradient
            assert shape.operations > 0
        assert len({(site.op, site.shapes, site.details) for site in sites}) == len(sites)


@pytest.mark.parametrize("name", fit.CLASSES)
def test_the_recorded_times_are_of_drawn_shapes(name: str) -> None:
    recorded = shapes.read_shapes(fit.FOLDER / f"{name.lower()}.csv")
    drawn = shapes.draw_shapes()
    assert {*recorded} <= {*drawn}
    assert len(recorded) >= len(drawn) - 2


def test_a_matrix_product_counts_its_operations() -> None:
    shape = Shape(op="MatMul", rows=3, depth=5, columns=7, turned=1)
    assert shape.operations == 2 * 3 * 5 * 7
    left, right = (operand.shape for operand in shape.create_site().inputs)
    assert (left, right) == ((5, 3), (5, 7))


def test_a_batch_is_of_transposed_matrices() -> None:
    shape = Shape(op="BatchMatMulV2", batch=4, rows=3, depth=5, columns=7, turned=2)
    assert shape.operations == 2 * 4 * 3 * 5 * 7
    site = shape.create_site()
    assert [operand.shape for operand in site.inputs] == [(4, 3, 5), (4, 7, 5)]
    assert site.attributes == {"adj_x": "b: false", "adj_y": "b: true"}


def test_an_einsum_has_the_sizes_of_its_labels() -> None:
    shape = Shape(
        op="Einsum", equation="aecd,abcd->acbe", batch=2, rows=3, depth=5, columns=7, filters=11
    )
    assert shape.operations == 2 * 2 * 3 * 5 * 7 * 11
    site = shape.create_site()
    assert [operand.shape for operand in site.inputs] == [(2, 11, 5, 7), (2, 3, 5, 7)]


def test_a_gradient_of_inputs_has_their_sizes() -> None:
    shape = Shape(
        op="Conv2DBackpropInput", rows=2, depth=8, columns=3, filters=5, height=3, width=1
    )
    sizes, filters, outputs = shape.create_site().inputs
    assert sizes.values == (2, 8, 8, 3)
    assert filters.shape == (3, 1, 3, 5)
    assert outputs.shape == (2, 8, 8, 5)
    assert shape.operations == 2 * 3 * math.prod(outputs.shape) * 3


def test_a_stride_divides_the_outputs() -> None:
    shape = Shape(
        op="Conv2DBackpropFilter",
        rows=2,
        depth=9,
        columns=3,
        filters=5,
        height=3,
        width=3,
        stride=2,
    )
    site = shape.create_site()
    assert site.inputs[-1].shape == (2, 5, 5, 5)
    assert site.attributes["strides"] == "list { i: 1 i: 2 i: 2 i: 1 }"
    assert shape.operations == 2 * 9 * 2 * 5 * 5 * 3 * 5


def test_constants_are_found_again() -> None:
    rng = np.random.default_rng(1)
    counts = np.exp(rng.uniform(0, 12, (60, 4)))
    constants = np.array([3.0, 0.0, 0.5, 0.02])
    times = counts @ constants
    assert fit.fit_constants(counts, times) == pytest.approx(constants, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("factor", "used"), [(1.5, True), (0.8, False), (1.01, False)])
def test_a_kernel_is_used_if_it_saves_time(factor: float, *, used: bool) -> None:
    rng = np.random.default_rng(2)
    timings = []
    for counts in np.exp(rng.uniform(0, 8, (40, 3))):
        ours = float(counts.sum() * np.exp(rng.normal(0, 0.03)))
        timings.append(fit.Timing(counts=(counts, counts), times=(ours, factor * counts.sum())))
    fitted = fit.fit_kernel(timings)
    assert (fitted.margin > 0) == used
    assert fitted.error == pytest.approx(0.03, rel=0.4)
    if used:
        assert len(fitted.chosen) == 40
        assert fitted.saving == pytest.approx(math.log(factor), abs=0.02)


@pytest.mark.toolchain
def test_the_constants_in_the_library_are_those_of_the_recorded_times() -> None:
    fitted = {name: fit.fit_class(name) for name in fit.CLASSES}
    assert all(len(kernels) == 14 for _, kernels in fitted.values())
    assert fit.render_header(fitted) == fit.COSTS.read_text("utf-8")
