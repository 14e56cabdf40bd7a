"""What tuned kernels compute: against arithmetic with more digits, against stock's random numbers,
and against the examples that TensorFlow's own documentation gives."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special
from tests.builders.plans import fleet_for

from tfbuild import handlers
from tfbuild.commands import Request
from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.build_setup import read_requirements
from tfbuild.planning.selection import load_recorded_selections
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]

HERE = Path(__file__).parent
OTHERS = (
    *("cwise_op_sigmoid", "cwise_op_exp", "cwise_op_log", "cwise_op_erf", "softplus_op"),
    *("cwise_op_pow", "cwise_op_sub", "cwise_op_maximum", "cwise_op_squared_difference"),
)
"""Beside what --kernels hot compiles."""
BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Of the significand."""
HALVES = ("float16", "bfloat16")
NORMAL_ULPS = 4
"""Of the larger of a normal number and 1: how far ours may lie from stock's."""
MAXIMUM = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}
TINY = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
"""The least normal number: what is less may be flushed to zero."""
EXAMPLES = 200
"""Documented functions, at least, whose examples give with stock TensorFlow what they say."""
MODULES = (
    *("math_ops", "array_ops", "array_ops_stack", "nn_ops", "nn_impl", "random_ops", "clip_ops"),
    *("gen_math_ops", "gen_array_ops", "gen_nn_ops", "special_math_ops", "variables"),
    *("control_flow_ops", "linalg_ops", "sort_ops", "bitwise_ops", "stateless_random_ops"),
)

Reference = Callable[..., Any]


def sigmoid(x: Any) -> Any:
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, power) / (1 + power)


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Any) -> Any:
    return np.longdouble(special.erf(np.float64(x)))


def rsqrt_slope(x: Any) -> Any:
    return -0.5 * x ** np.longdouble(-1.5)


def apart(x: Any, y: Any) -> Any:
    return np.square(x - y)


def apart_slope(x: Any, y: Any) -> Any:
    return 2 * (y - x)


def power_slope(x: Any, y: Any) -> Any:
    return np.power(x, y) * np.log(x)


@dataclass(frozen=True)
class Function:
    """An elementwise op, the function of tf.math that runs it, and what both compute.

    Results are within `ulps` units of the last place; those of `slope`, the gradient by the last
    input, within `slope_ulps` units of the last place of the larger of themselves and `scale`.
    `positive` is how many of the first inputs must be above 0.
    """

    op: str
    name: str
    value: Reference
    slope: Reference
    ulps: float
    slope_ulps: float
    scale: float = 0.0
    positive: int = 0
    names: tuple[str, ...] = ("x",)


ROUNDED = 0.501
"""Half a unit, and what the reference itself is off: a correctly rounded result."""
TWO = ("x", "y")
ROOT_OF_PI = np.sqrt(np.longdouble(np.pi))
FUNCTIONS = (
    Function("Tanh", "tanh", np.tanh, lambda x: 1 / np.cosh(x) ** 2, 5, 8, scale=1),
    Function("Sigmoid", "sigmoid", sigmoid, lambda x: sigmoid(x) * sigmoid(-x), 4, 8, scale=1),
    Function("Exp", "exp", np.exp, np.exp, 2, 2),
    Function("Log", "log", np.log, lambda x: 1 / x, 2, 3, positive=1),
    Function("Erf", "erf", erf, lambda x: 2 / ROOT_OF_PI * np.exp(-x * x), 4, 8, scale=1),
    Function("Softplus", "softplus", softplus, sigmoid, 7, 8, names=("features",)),
    Function("Rsqrt", "rsqrt", lambda x: 1 / np.sqrt(x), rsqrt_slope, 3, 8, positive=1),
    Function("Square", "square", np.square, lambda x: 2 * x, ROUNDED, ROUNDED),
    Function("Neg", "negative", np.negative, lambda x: -np.ones_like(x), 0, 0),
    Function("AddV2", "add", np.add, lambda _, y: np.ones_like(y), ROUNDED, 0, names=TWO),
    Function("Sub", "subtract", np.subtract, lambda _, y: -np.ones_like(y), ROUNDED, 0, names=TWO),
    Function("Mul", "multiply", np.multiply, lambda x, _: x, ROUNDED, 0, names=TWO),
    Function("RealDiv", "divide", np.divide, lambda x, y: -x / y / y, ROUNDED, 2, names=TWO),
    Function("Maximum", "maximum", np.maximum, lambda x, y: np.where(y > x, 1, 0), 0, 0, names=TWO),
    Function("SquaredDifference", "squared_difference", apart, apart_slope, 2, 1, names=TWO),
    Function("Pow", "pow", np.power, power_slope, 4, 8, positive=1, names=TWO),
)


@pytest.fixture(scope="module")
def tuned_arm(paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """With every type of the kernels that the project times, for this CPU. Its wheel is called as
    the other tests' native one, so it has a pool of its own."""
    paths = dataclasses.replace(paths, pool=tmp_path_factory.mktemp("operations"))
    hot = {unit for selection in load_recorded_selections() for unit in selection.kernels}
    names = ",".join(sorted({*hot, *OTHERS}))
    fleet, compiler = fleet_for(Request(arch="native", kernels=names))
    jobs = handlers.choose_jobs(fleet.first, "")
    built = builder.build_wheel(fleet, compiler=compiler, jobs=jobs, paths=paths)
    needs = read_requirements(fleet.first)
    return environment.create(
        built.wheel, python=fleet.first.python, requirements=needs, paths=paths
    )


def program(arm: Environment, name: str, *words: str | Path) -> str:
    done = run(
        [arm.python, "-P", HERE / name, *words], env=admission.build_probe_env(), timeout_s=900
    )
    return done.output.splitlines()[-1] if done.output else ""


# ---- numbers of a type, and how far a result lies from what it should be ----


def rounded(values: Any, dtype: str) -> Any:
    """To numbers of the type, as long doubles."""
    if dtype != "bfloat16":
        return np.asarray(values, dtype).astype(np.longdouble)
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.longdouble)


def stored(values: Any, dtype: str) -> Any:
    """As the arm gets them: bfloat16 by its bits."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def read(values: Any, dtype: str) -> Any:
    if dtype != "bfloat16":
        return values.astype(np.longdouble)
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.longdouble)


def drawn(count: int, dtype: str, *, positive: bool, seed: int) -> Any:
    """Of all magnitudes that matter, then awkward ones."""
    draw = np.random.default_rng(seed)
    reach = 3.5 if dtype == "float16" else 25.0
    small = draw.normal(0, 3, count)
    wide = draw.choice([-1.0, 1.0], count) * 10 ** draw.uniform(-reach, reach, count)
    near = np.round(small) + draw.normal(0, 1e-3, count)
    odd = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, TINY[dtype], 0.5, 88.0, -88.0, 20.0]
    values = np.concatenate([small, wide, near, odd])
    return rounded(np.abs(values) if positive else values, dtype)


def ulps_apart(got: Any, want: Any, dtype: str, scale: float) -> float:
    """The most units of the last place between results and references; infinite where one is no
    number or an infinity and the other is not. What is less than the least normal number may be
    anything below it."""
    largest = np.longdouble(MAXIMUM.get(dtype) or np.finfo(dtype).max)
    over = np.abs(want) > largest * (1 + np.longdouble(2) ** -BITS[dtype])
    want = np.where(over, np.copysign(np.longdouble(np.inf), want), want)
    strange = ~np.isfinite(want) | ~np.isfinite(got)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    low = (np.abs(want) < TINY[dtype]) & (np.abs(got) <= TINY[dtype])
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(np.where(strange, 1, want)), max(scale, TINY[dtype]))
        ulp = 2.0 ** (np.floor(np.log2(size)) - BITS[dtype] + 1)
        apart = np.where(strange, np.inf, np.abs(got - want) / ulp)
    return float(np.max(np.where(same | low, 0, apart)))


@dataclass(frozen=True)
class Asked:
    """A function on numbers of a type: the inputs, and what is to come out."""

    function: Function
    dtype: str
    gradient: bool
    inputs: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.function.op} {self.dtype}{' gradient' * self.gradient}"

    @property
    def limit(self) -> float:
        return self.function.slope_ulps if self.gradient else self.function.ulps

    def apart(self, got: Any) -> float:
        compute = self.function.slope if self.gradient else self.function.value
        with np.errstate(all="ignore"):
            want = np.asarray(compute(*self.inputs), np.longdouble)
        scale = self.function.scale if self.gradient else 0.0
        return ulps_apart(read(got, self.dtype), want, self.dtype, scale)


def asked(function: Function, dtype: str, *, gradient: bool) -> Asked:
    """Gradients are taken where they are finite numbers of ordinary size."""
    inputs = tuple(
        drawn(333, dtype, positive=number < function.positive, seed=number)
        for number in range(len(function.names))
    )
    if gradient:
        usual = [(np.abs(array) > 1e-3) & (np.abs(array) < 30) for array in inputs]
        inputs = tuple(array[np.logical_and.reduce(usual)] for array in inputs)
    return Asked(function, dtype, gradient, inputs)


ASKED = tuple(
    asked(function, dtype, gradient=gradient)
    for function in FUNCTIONS
    for dtype in BITS
    for gradient in (False, True)
    if not (gradient and dtype in HALVES)
)


NORMAL = ("RandomStandardNormal", "TruncatedNormal")
SIZES = (1, 7, 1_000, 100_003)
RANDOM = tuple(itertools.product(("RandomUniform", *NORMAL), BITS, SIZES))


@pytest.fixture(scope="module")
def stock_results(
    stock_arm: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    return answers(stock_arm, (), tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def results(tuned_arm: Environment, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the tuned wheel answers to all of them."""
    return answers(tuned_arm, ASKED, tmp_path_factory.mktemp("operations"))


def answers(arm: Environment, operations: Sequence[Asked], folder: Path) -> Mapping[str, Any]:
    calls: list[dict[str, Any]] = [
        {
            "name": operation.name,
            "op": operation.function.name if operation.gradient else operation.function.op,
            "names": operation.function.names,
            "dtype": operation.dtype,
            "kind": "gradient" if operation.gradient else "op",
            "inputs": [f"{operation.name} {number}" for number in range(len(operation.inputs))],
        }
        for operation in operations
    ]
    calls += [
        {
            "name": f"{op} {dtype} {size}",
            "kind": "random",
            "op": op,
            "dtype": dtype,
            "shape": [size],
        }
        for op, dtype, size in RANDOM
    ]
    inputs = {
        f"{operation.name} {number}": stored(values, operation.dtype)
        for operation in operations
        for number, values in enumerate(operation.inputs)
    }
    asked_file, inputs_file, results_file = (
        folder / name for name in ("calls.json", "inputs.npz", "results.npz")
    )
    asked_file.write_text(json.dumps(calls), encoding="utf-8")
    np.savez(inputs_file, **inputs)
    program(arm, "operations.py", asked_file, inputs_file, results_file)
    with np.load(results_file) as actual:
        return dict(actual)


@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: operation.name)
def test_results_are_those_of_arithmetic_with_more_digits(
    operation: Asked, results: Mapping[str, Any]
) -> None:
    assert operation.apart(results[operation.name]) <= operation.limit


@pytest.mark.parametrize("dtype", BITS)
def test_the_same_seed_gives_the_same_uniform_numbers_bit_for_bit(
    dtype: str, results: Mapping[str, Any], stock_results: Mapping[str, Any]
) -> None:
    for size in SIZES:
        name = f"RandomUniform {dtype} {size}"
        assert results[name].tobytes() == stock_results[name].tobytes()
        assert len(np.unique(results[name])) > size // (1000 if dtype in HALVES else 2)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("op", NORMAL)
def test_the_same_seed_gives_nearly_the_same_normal_numbers(
    op: str, dtype: str, results: Mapping[str, Any], stock_results: Mapping[str, Any]
) -> None:
    for size in SIZES:
        name = f"{op} {dtype} {size}"
        got, want = (read(record[name], dtype) for record in (results, stock_results))
        assert got.shape == (size,)
        assert ulps_apart(got, want, dtype, 1.0) <= NORMAL_ULPS


def test_examples_of_the_documentation_give_what_they_say(
    tuned_arm: Environment, stock_arm: Environment
) -> None:
    """Each that does so with the stock wheel does so with the tuned one."""
    modules = [f"tensorflow.python.ops.{name}" for name in MODULES]
    tuned, stock = (
        json.loads(program(arm, "examples.py", *modules)) for arm in (tuned_arm, stock_arm)
    )
    assert sum(stock.values()) >= EXAMPLES
    assert [name for name, passed in stock.items() if passed and not tuned[name]] == []
