"""Runs inside TensorFlow: while loops that read variables, where there are two CPUs (held.py)."""

from __future__ import annotations

import functools
from types import ModuleType

import tensorflow as tf
from tests.integration import held

from tfbuild.probe import float64
from tfbuild.probe.fusing import Tensor, in_graph


def read(module: ModuleType, dtype: str, *, from_both: bool) -> list[Tensor]:
    """One operation is on one device, as each variable that it reads has to be."""
    draw = functools.partial(float64.draw_as, module, dtype, (6,))
    variables = []
    for cpu in range(2 if from_both else 1):
        with module.device(f"CPU:{1 - cpu}"):
            variables.append(module.Variable(draw(cpu)))

    @in_graph(module)
    def run(times: Tensor, start: Tensor) -> Tensor:
        return module.while_loop(
            lambda step, _: step < times,
            lambda step, state: (step + 1, module.add_n([module.tanh(state), *variables])),
            (0, start),
        )[1]

    return [run(module.constant(times), draw(3)) for times in (3, 0)]


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    programs = {"one": False, "both": True}
    held.hold(
        "loops",
        {
            name: float64.create_case(functools.partial(read, from_both=from_both))
            for name, from_both in programs.items()
        },
    )
