"""All commands, for `invoke` in a checkout and for the console script `tensorwright`."""

from __future__ import annotations

from types import ModuleType

from invoke.collection import Collection

from tensorwright import articles, build, measure, project, publish
from tensorwright.command import SCRIPT, Command


def collect_commands() -> Collection:
    """Return all commands as a collection.

    A command that serves one article is also found in the collection `articles`.
    """
    ns = Collection()
    for group in (build, measure, publish, articles, project):
        for task in _list_commands(group):
            if not task.is_default:
                ns.add_task(task)
    ns.add_collection(Collection(articles.GROUP, *_list_commands(articles)))
    ns.configure({"run": {"echo": False}})
    return ns


def _list_commands(group: ModuleType) -> list[Command]:
    return [member for member in vars(group).values() if isinstance(member, Command)]


def main(called: str = SCRIPT) -> None:
    """Run the console script, or the same program under another name."""
    from tensorwright.commandline import CommandLine

    CommandLine(collect_commands(), called).run()
