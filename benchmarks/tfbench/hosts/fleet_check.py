"""A ReFrame test that compares wheels on each partition of a system.

`invoke fleet` runs it with settings made from a table of hosts. It also runs with your own ReFrame
and settings: `invoke fleet --prepare FOLDER` writes the files for the hosts, then

    reframe -c FOLDER/fleet_check.py -C SETTINGS -S bundle=FOLDER -S vcpus=1,2 -r

What a partition has in its `extras` under `tensorwright` replaces the variables of the test. This
file imports ReFrame only.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable

_BUNDLE = "bundle.json"


@rfm.simple_test
class TensorwrightComparison(rfm.RunOnlyRegressionTest):
    """Compares stock TensorFlow with tuned wheels; fails if that was not possible."""

    descr = "stock TensorFlow compared with tuned wheels"
    valid_systems = ["*"]  # noqa: RUF012  (ReFrame takes lists only)
    valid_prog_environs = ["*"]  # noqa: RUF012
    sourcesdir = None
    bundle = variable(str, value=str(Path(__file__).resolve().parent))
    vcpus = variable(str, value="")
    folder = variable(str, value="~/.cache/tensorwright-fleet")
    python = variable(str, value="python3")
    limit_s = variable(float, value=0.0)

    @run_before("run")
    def stage_files(self) -> None:
        """Put the wheels and the job into the stage folder, by hard links where possible."""
        bundle, stage = Path(self.bundle), Path(self.stagedir)
        job = json.loads((bundle / _BUNDLE).read_text("utf-8")) | {
            "name": self.current_partition.name,
            "folder": self.folder,
            "limit_s": self.limit_s,
            "vcpus": [int(word) for word in self.vcpus.split(",") if word],
            "environment": {},
        }
        extras = dict(self.current_partition.extras.get("tensorwright", {}))
        python = extras.pop("python", self.python)
        job |= extras
        for name in (
            "start.sh",
            "on_host.py",
            *(row["file"] for row in (job["archive"], *job["wheels"])),
        ):
            _link(bundle / name, stage / name)
        descriptor = os.open(stage / "job.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(job, file)
        self.executable, self.executable_opts = "sh", ["start.sh", python]
        self.keep_files = ["outcome.json", "results"]
        if job["vcpus"]:
            self.num_cpus_per_task = max(job["vcpus"])
        if job["limit_s"]:
            # The host itself ends the comparison at the limit; installing takes time before that.
            self.time_limit = f"{int(job['limit_s']) + 600}s"

    @sanity_function
    def check_outcome(self) -> bool:
        path = Path(self.stagedir, "outcome.json")
        if not path.is_file():
            errors = Path(self.stagedir, "rfm_job.err")
            lines = errors.read_text("utf-8", "replace").split("\n") if errors.is_file() else []
            told = [line.strip() for line in lines if line.strip()]
            return bool(sn.assert_true(0, told[-1] if told else "the host sent nothing back"))
        outcome = json.loads(path.read_text("utf-8"))
        return bool(sn.assert_eq(outcome["status"], "done", outcome.get("reason", "")))

    @run_before("performance")
    def report_speedups(self) -> None:
        """Report the mean speedup of each wheel over stock, per number of vCPUs."""
        path = Path(self.stagedir, "results", "comparison.json")
        rows: list[dict[str, Any]] = []
        if path.is_file():
            rows = json.loads(path.read_text("utf-8"))["overall"]
        self.perf_variables = {
            f"{row['speedup']['arm']}_{row['vcpus']}".replace("-", "_"): (
                sn.make_performance_function(sn.defer(row["speedup"]["interval"]["value"]), "x")
            )
            for row in rows
        }


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
