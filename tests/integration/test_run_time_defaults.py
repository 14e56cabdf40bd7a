"""Run-time defaults in the real TensorFlow: the stock environment with a guarded __init__.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.dispatchers import PRESENT, on_x86_64, target
from tests.builders.overlays import Overlay, lay_over
from tests.builders.own_cpu import ONEDNN_FEATURES
from tests.builders.plans import planned

from tfbuild.kernelbuild import admission
from tfbuild.planning.guard import DEFAULTS_DATA, build_defaults_file
from tfbuild.tools.environment import Environment
from tfcore.run import run

pytestmark = [on_x86_64, pytest.mark.toolchain]

PROGRAM = """
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port as port
assert abs(float(tf.tanh(tf.constant([0.5]))[0]) - 0.46211717) < 1e-6
print(port.IsMklEnabled())
"""
SET = "tensorwright: TF_ENABLE_ONEDNN_OPTS=1 for haswell; TENSORWRIGHT_DEFAULTS=0 turns this off"


def overlay(arm: Environment, folder: Path) -> Overlay:
    """TensorFlow with the defaults of a wheel for haswell."""
    plan = planned("haswell", trust_emulated=True)
    haswell_overlay = lay_over(arm, folder, target("haswell", *PRESENT))
    data = build_defaults_file("x86_64", [(plan.target.local, plan.required, plan.defaults)])
    (haswell_overlay.site / DEFAULTS_DATA).write_bytes(data[DEFAULTS_DATA])
    return haswell_overlay


def lines(site_overlay: Overlay, *emulator: str, **env: str) -> list[str]:
    ours = {
        **admission.build_probe_env(),
        "PYTHONPATH": str(site_overlay.site),
        "TF_CPP_MIN_LOG_LEVEL": "0",
    }
    known = {name: value for name, value in ours.items() if "ONEDNN" not in name} | env
    words: list[str | Path] = [*emulator, site_overlay.arm.python, "-c", PROGRAM]
    return run(words, env=known, cwd=site_overlay.site, timeout_s=600).output.splitlines()


def test_a_cpu_without_vnni_gets_onednn_and_may_refuse(
    stock_arm: Environment, tmp_path: Path
) -> None:
    """It is on by itself on a newer CPU, so here TENSORWRIGHT_MASK hides that."""
    site_overlay = overlay(stock_arm, tmp_path)
    output_lines = lines(site_overlay, TENSORWRIGHT_MASK=",".join(ONEDNN_FEATURES))
    assert SET in output_lines
    assert output_lines[-1] == "True"
    for env in ({"TF_ENABLE_ONEDNN_OPTS": "0"}, {"TF_ENABLE_ONEDNN_OPTS": "1"}):
        output_lines = lines(site_overlay, TENSORWRIGHT_MASK=",".join(ONEDNN_FEATURES), **env)
        assert SET not in output_lines
        assert output_lines[-1] == str(env["TF_ENABLE_ONEDNN_OPTS"] == "1")


@pytest.mark.slow
@pytest.mark.parametrize(("env", "onednn"), [({}, True), ({"TENSORWRIGHT_DEFAULTS": "0"}, False)])
def test_an_emulated_haswell_runs_as_the_wheel_says(
    stock_arm: Environment, tmp_path: Path, *, env: dict[str, str], onednn: bool
) -> None:
    output_lines = lines(overlay(stock_arm, tmp_path), "qemu-x86_64", "-cpu", "Haswell", **env)
    assert output_lines[-1] == str(onednn)
    assert (SET in output_lines) == onednn
