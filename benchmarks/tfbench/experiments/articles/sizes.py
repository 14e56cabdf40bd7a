"""The options of each experiment, for a short run and for a full run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from tfbench.commands import (
    AccuracyOptions,
    OverheadOptions,
    SizingOptions,
    StrategiesOptions,
    ThroughputOptions,
)
from tfbench.experiments.accuracy import handler as accuracies
from tfbench.experiments.overhead import handler as overheads
from tfbench.experiments.sizing import handler as sizings
from tfbench.experiments.strategies import handler as placements
from tfbench.experiments.throughput import handler as throughputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The options of each experiment's own command."""

    throughput: ThroughputOptions
    accuracy: AccuracyOptions
    sizing: SizingOptions
    strategies: StrategiesOptions
    overhead: OverheadOptions

    def set_arms(self, arms: str) -> Sizes:
        """Return the sizes with other wheels; sizing uses only the first wheel."""
        return Sizes(
            throughput=dataclasses.replace(self.throughput, arms=arms),
            accuracy=dataclasses.replace(self.accuracy, arms=arms),
            sizing=dataclasses.replace(self.sizing, arms=arms.partition(",")[0]),
            strategies=dataclasses.replace(self.strategies, arms=arms),
            overhead=dataclasses.replace(self.overhead, arms=arms),
        )

    def set_folder(self, folder: Path) -> Sizes:
        """Return the sizes with each experiment in its own subfolder of `folder`."""
        return Sizes(
            throughput=dataclasses.replace(self.throughput, out=str(folder / throughputs.KIND)),
            accuracy=dataclasses.replace(self.accuracy, out=str(folder / accuracies.KIND)),
            sizing=dataclasses.replace(self.sizing, out=str(folder / sizings.KIND)),
            strategies=dataclasses.replace(self.strategies, out=str(folder / placements.KIND)),
            overhead=dataclasses.replace(self.overhead, out=str(folder / overheads.KIND)),
        )


QUICK = Sizes(
    throughput=ThroughputOptions(image="64", batches="4,8,16", steps="20", launches="3"),
    accuracy=accuracies.QUICK,
    sizing=SizingOptions(image="64", inputs="cached,20MB/s", seconds="2", launches="3"),
    strategies=placements.QUICK,
    overhead=OverheadOptions(launches="3"),
)
"""About 20 minutes on two vCPUs."""
FULL = Sizes(
    throughput=ThroughputOptions(workloads="resnet50,inception_v3", augmentation="both"),
    accuracy=AccuracyOptions(),
    sizing=SizingOptions(inputs="memory,cached,cold,20MB/s", memory="0,4000,2000,1000"),
    strategies=StrategiesOptions(),
    overhead=OverheadOptions(),
)
"""The commands' defaults, with more inputs and limits. Takes hours."""
