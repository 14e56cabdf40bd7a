"""Published scaling, for comparison: images per second by number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.experiments.strategies.strategy import StrategyFamily
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import find_workload
from tfcore.errors import RecordError
from tfcore.records import parse_toml, read_text

P100 = Path(__file__).with_name("p100.toml")
FLOAT_BYTES = 4
_FAMILIES = {
    "parameter_server": StrategyFamily.PARAMETER_SERVER,
    "replicated": StrategyFamily.ALL_REDUCE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedModel:
    """A published net. `workload` is our name for it, `batch` the batch of one device, `family`
    how its authors ran it. `images_s` are images per second of all devices, by their number.
    """

    name: str
    workload: str
    batch: int
    family: StrategyFamily
    images_s: Mapping[int, float]

    def compute_efficiency(self, devices: int) -> float:
        """Return images per second relative to those of as many single devices. Raises KeyError."""
        return self.images_s[devices] / (devices * self.images_s[1])

    @property
    def intensity(self) -> float:
        """Return bytes of parameters per second of one device's computation."""
        parameters = find_workload(self.workload).parameters
        assert parameters is not None  # noqa: S101  (every net has a published size)
        return parameters * FLOAT_BYTES * self.images_s[1] / self.batch


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRuns:
    title: str
    source: str
    as_of: str
    devices: tuple[int, ...]
    models: tuple[PublishedModel, ...]

    def find_model(self, workload: str) -> PublishedModel | None:
        """Return the model that the workload's name stands for, whatever its sizes; None if
        there is none.
        """
        name = parse_name(workload).model
        return next((model for model in self.models if model.workload == name), None)

    @property
    def split(self) -> tuple[float, float]:
        """Return the highest intensity, in bytes of parameters per second of computation, that the
        authors ran with a parameter server, and the lowest that they ran replicated.
        """
        server, replicated = (
            [model.intensity for model in self.models if model.family is family]
            for family in (StrategyFamily.PARAMETER_SERVER, StrategyFamily.ALL_REDUCE)
        )
        return max(server), min(replicated)


def read_published(path: Path = P100) -> PublishedRuns:
    """Read the published results. Raises RecordError if the file is incomplete."""
    try:
        fields = parse_toml(read_text(path))
        devices = tuple(fields["devices"])
        return PublishedRuns(
            title=fields["title"],
            source=fields["source"],
            as_of=fields["as_of"],
            devices=devices,
            models=tuple(_build_model(model, devices) for model in fields["model"]),
        )
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not a table of published results ({error})") from error


def _build_model(fields: Mapping[str, Any], devices: tuple[int, ...]) -> PublishedModel:
    return PublishedModel(
        name=fields["name"],
        workload=fields["workload"],
        batch=fields["batch"],
        family=_FAMILIES[fields["variable_update"]],
        images_s=dict(zip(devices, map(float, fields["images_s"]), strict=True)),
    )
