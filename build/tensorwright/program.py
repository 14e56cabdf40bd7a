"""All commands, for `invoke` in a checkout and for the console script `tensorwright`."""

from __future__ import annotations

from types import ModuleType

from invoke.collection import Collection

from tensorwright import articles, build, measure, project, publish
from tensorwright.command import SCRIPT, Command


def commands() -> Collection:
    """What serves one article stands under its group and, as ever, by its own name."""
    ns = Collection()
    for group in (build, measure, publish, articles, project):
        for each in _of(group):
            if not each.is_default:
                ns.add_task(each)
    ns.add_collection(Collection(articles.GROUP, *_of(articles)))
    ns.configure({"run": {"echo": False}})
    return ns


def _of(group: ModuleType) -> list[Command]:
    return [each for each in vars(group).values() if isinstance(each, Command)]


def main(called: str = SCRIPT) -> None:
    """The console script, or with another name what runs the same."""
    from tensorwright.commandline import CommandLine

    CommandLine(commands(), called).run()
