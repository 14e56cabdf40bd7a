"""The commands that run the experiments of five articles, all together or one at a time."""

from __future__ import annotations

from tensorwright.command import command
from tfbench.commands import (
    AccuracyOptions,
    ArticlesOptions,
    OverheadOptions,
    SizingOptions,
    StrategiesOptions,
    ThroughputOptions,
)
from tfbuild.commands import DRY_RUN, Output

GROUP = "articles"


@command(GROUP, ArticlesOptions, DRY_RUN, common=True, default=True, name="all")
def articles(options: ArticlesOptions, output: Output) -> str:
    """Repeat the experiments of five articles (docs/articles.md) and write a page of results."""
    from tfbench.experiments import articles as reproducing

    if output.dry_run:
        return reproducing.describe_plan(options)
    return reproducing.measure_articles(options)


@command(GROUP, ThroughputOptions, Output)
def throughput(options: ThroughputOptions, output: Output) -> str:
    """Measure images per second at each batch size, with --prices also images per dollar."""
    from tfbench.experiments.throughput import THROUGHPUT

    if output.dry_run:
        return THROUGHPUT.describe_plan(options)
    return THROUGHPUT.run(options, as_json=output.json)[1]


@command(GROUP, AccuracyOptions, Output)
def accuracy(options: AccuracyOptions, output: Output) -> str:
    """Train on real data to a target accuracy and report the time and the cost."""
    from tfbench.experiments.accuracy import handler as training

    if output.dry_run:
        return training.describe_plan(options)
    return training.measure_accuracy(options, as_json=output.json)[1]


@command(GROUP, SizingOptions, Output)
def sizing(options: SizingOptions, output: Output) -> str:
    """Find the fewest vCPUs and the least memory that keep a model fast, for each kind of input."""
    from tfbench.experiments import sizing as sizes

    if output.dry_run:
        return sizes.create_experiment().describe_plan(options)
    return sizes.measure_sizing(options, as_json=output.json)[1]


@command(GROUP, StrategiesOptions, Output)
def strategies(options: StrategiesOptions, output: Output) -> str:
    """Measure how fast distribution strategies train on several devices."""
    from tfbench.experiments.strategies.handler import STRATEGIES

    if output.dry_run:
        return STRATEGIES.describe_plan(options)
    return STRATEGIES.run(options, as_json=output.json)[1]


@command(GROUP, OverheadOptions, Output)
def overhead(options: OverheadOptions, output: Output) -> str:
    """Measure the overhead of each epoch, call and step of training, with a tiny model."""
    from tfbench.experiments.overhead import OVERHEAD

    if output.dry_run:
        return OVERHEAD.describe_plan(options)
    return OVERHEAD.run(options, as_json=output.json)[1]
