"""Published scaling to stand beside what is measured: images per second by number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.inside.workloads import find_workload
from tfbench.strategies.strategy import StrategyFamily
from tfbuild.errors import RecordError
from tfbuild.records import parse_toml, read_text

P100 = Path(__file__).with_name("p100.toml")
FLOAT_BYTES = 4
_FAMILIES = {
    "parameter_server": StrategyFamily.PARAMETER_SERVER,
    "replicated": StrategyFamily.ALL_REDUCE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedModel:
    """`workload` is our name for the net. `batch` is a device's; `family` is how its authors ran
    it. `images_s` are those of all devices, by their number."""

    name: str
    workload: str
    batch: int
    family: StrategyFamily
    images_s: Mapping[int, float]

    def efficiency(self, devices: int) -> float:
        """Images per second over those of so many single devices. Raises KeyError."""
        return self.images_s[devices] / (devices * self.images_s[1])

    @property
    def intensity(self) -> float:
        """Bytes of parameters per second of one device's computing."""
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

    def find(self, workload: str) -> PublishedModel | None:
        """The model that a workload's name, whatever its sizes, stands for."""
        name = workload.partition(":")[0]
        return next((each for each in self.models if each.workload == name), None)

    @property
    def split(self) -> tuple[float, float]:
        """The most bytes of parameters per second of computing that its authors ran with a
        parameter server, and the least that they ran replicated."""
        server, replicated = (
            [each.intensity for each in self.models if each.family is family]
            for family in (StrategyFamily.PARAMETER_SERVER, StrategyFamily.ALL_REDUCE)
        )
        return max(server), min(replicated)


def read(path: Path = P100) -> PublishedRuns:
    """Raises RecordError for a file that is not whole."""
    try:
        fields = parse_toml(read_text(path))
        devices = tuple(fields["devices"])
        return PublishedRuns(
            title=fields["title"],
            source=fields["source"],
            as_of=fields["as_of"],
            devices=devices,
            models=tuple(_model(each, devices) for each in fields["model"]),
        )
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is no table of published figures ({error})") from error


def _model(fields: Mapping[str, Any], devices: tuple[int, ...]) -> PublishedModel:
    return PublishedModel(
        name=fields["name"],
        workload=fields["workload"],
        batch=fields["batch"],
        family=_FAMILIES[fields["variable_update"]],
        images_s=dict(zip(devices, map(float, fields["images_s"]), strict=True)),
    )
