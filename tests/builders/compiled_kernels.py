"""Kernel libraries that the conformance test would see, and what programs that load them answer."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.builders.plans import plan_for

from tfbuild import handlers
from tfbuild.commands import Request
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.build_setup import prepare_setup
from tfbuild.tools.environment import Environment
from tfcore.run import run
from tfcore.settings import Paths


def compiled(
    request: Request, paths: Paths, copts: Sequence[str] = (), linkopts: Sequence[str] = ()
) -> Mapping[str, Path]:
    """By kernel group, with these options of the compiler and the linker, too."""
    plan, compiler = plan_for(request)
    recipe = dataclasses.replace(
        plan.kernel_recipe,
        copts=(*plan.kernel_recipe.copts, *copts),
        linkopts=(*plan.kernel_recipe.linkopts, *linkopts),
    )
    plan = dataclasses.replace(plan, kernel_recipe=recipe)
    ground = prepare_setup(plan, paths, None, None)
    workspace = workspaces.prepare_workspace(
        plan, compiler, handlers.choose_jobs(plan, ""), ground, paths
    )
    return workspaces.compile_units(workspace, plan.kernels, keep_going=False).libraries


def answered(
    arm: Environment,
    program: Path,
    out: Path,
    *words: str | Path,
    timeout_s: float = 600.0,
    **env: str,
) -> dict[str, Any]:
    """What the program has written to `out`, its first argument."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"} | env
    run([arm.python, program, out, *words], env=quiet, timeout_s=timeout_s)
    answer: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return answer
