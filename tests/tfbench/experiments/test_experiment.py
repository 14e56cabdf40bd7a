"""What every experiment has in common: its options are checked before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfbench.commands import (
    OverheadOptions,
    SizingOptions,
    StrategiesOptions,
    ThroughputOptions,
)
from tfbench.experiments.experiment import CellExperiment
from tfbench.experiments.overhead import OVERHEAD
from tfbench.experiments.sizing import create_experiment
from tfbench.experiments.strategies.handler import STRATEGIES
from tfbench.experiments.throughput import THROUGHPUT
from tfcore.errors import UsageError

SIZING = create_experiment()


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        *(
            (THROUGHPUT, ThroughputOptions(**fields), message)
            for fields, message in (
                ({"workloads": "resnet"}, "Did you mean resnet50"),
                ({"batches": "0"}, "is not a list of batch sizes"),
                ({"batches": ""}, "is not a list of batch sizes"),
                ({"batches": "4,x"}, "not a list of whole numbers"),
                ({"image": "16"}, "takes images of at least 32 pixels"),
                ({"augmentation": "maybe"}, "Use off, on or both"),
                ({"workloads": "mnist_mlp", "augmentation": "on"}, "has no images to augment"),
                ({"prices": "2017-07-gce"}, "Add --machine, one of gpu"),
                ({"machine": "cpu8"}, "Add, for example, --prices"),
                ({"prices": "2017-07-gce", "machine": "cpu9"}, "has no prices for 'cpu9'"),
                ({"workloads": "iris_mlp", "batches": "500"}, "larger than the training set"),
                ({"steps": "0"}, "--steps"),
                ({"workload": "resnet50"}, "Use --workloads resnet50"),
                ({"workload": "nowhere/model.py"}, "file not found"),
            )
        ),
        *(
            (SIZING, SizingOptions(**fields), message)
            for fields, message in (
                ({"memory": "100"}, "is too small to import TensorFlow"),
                ({"memory": "1GB"}, "not a list of whole numbers"),
                ({"phases": "trian"}, "Did you mean train"),
                ({"phases": ""}, "is empty"),
                ({"inputs": "chached"}, "Did you mean cached"),
                ({"data": "/nowhere/at/all"}, "there is no folder"),
                ({"workloads": "alexnett"}, "Did you mean alexnet"),
                ({"vcpus": "4096"}, "usable"),
                ({"seconds": "0"}, "--seconds"),
                ({"arms": "stock,tuned"}, "several"),
            )
        ),
        *(
            (OVERHEAD, OverheadOptions(**fields), message)
            for fields, message in (
                ({"workload": "iris"}, "Did you mean iris_mlp"),
                ({"workload": "nowhere/model.py"}, "file not found"),
                ({"epochs": "1"}, "--epochs"),
                ({"launches": "1"}, "--launches"),
                ({"vcpus": "4096"}, "usable"),
            )
        ),
        *(
            (STRATEGIES, StrategiesOptions(**fields), message)
            for fields, message in (
                ({"strategies": "centrall"}, "Did you mean central?"),
                ({"strategies": "ring,zzz"}, "Available: central"),
                ({"workloads": "alexnt"}, "Did you mean alexnet?"),
                ({"workloads": "alexnet:image=8"}, "32 pixels"),
                ({"kind": "gpus"}, "Did you mean gpu?"),
                ({"devices": "0"}, "Give 1 to 64"),
                ({"devices": "65"}, "Give 1 to 64"),
                ({"devices": "two"}, "not a list of whole numbers"),
                ({"launches": "1"}, "from 2"),
                ({"seconds": "nan"}, "not a number above 0"),
                ({"seed": "-1"}, "--seed"),
            )
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(
    experiment: CellExperiment[Any, Any, Any], options: object, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        experiment.parse_options(options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("experiment", "options", "line"),
    [
        (
            THROUGHPUT,
            ThroughputOptions(batches="4,8", launches="2"),
            "processes    4, 100 steps each\n",
        ),
        (SIZING, SizingOptions(vcpus="1", memory="0,400"), "memory     no limit, 400 MB\n"),
        (OVERHEAD, OverheadOptions(epochs="5"), "fit():\n  epochs=5, repeat(1), steps_per"),
        (STRATEGIES, StrategiesOptions(seconds="2.5"), "launches   3 of each, with 2.5 s of"),
    ],
)
def test_a_dry_run_says_what_would_be_measured(
    experiment: CellExperiment[Any, Any, Any],
    options: object,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path))
    assert line in experiment.describe_plan(options)
    assert not any(tmp_path.iterdir())
