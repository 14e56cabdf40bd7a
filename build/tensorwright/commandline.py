"""The command line: Invoke's program with our errors, our help and commands listed by group.

Errors in a command line become UsageError (`create_usage_error`). If the reader closes the output,
the program ends silently with READER_GONE. tasks.py makes `python -m invoke` run this program.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TextIO

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError, UnknownFileType
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.tasks import Task
from invoke.util import helpline

from tensorwright.command import SCRIPT, Command, rewrite_commands
from tfcore.errors import UsageError

INSTALL = "TENSORWRIGHT_INSTALL"
"""The same as settings.INSTALL. Importing settings would slow down --list."""
READER_GONE = 141
"""128 + SIGPIPE: the exit code in a shell of a program whose output was closed."""
EVERY = "all"
"""Value of --list for the commands of all groups. Without it only common commands are listed."""
LISTED = f"invoke --list {EVERY} lists all commands"
SEE_LIST = f"See invoke --list {EVERY}"
_FORMATS = ("flat", "nested", "json")
# Messages of Invoke: its exceptions carry no other details.
_UNKNOWN = re.compile(r"No idea what (['\"])(?P<word>.*)\1 is!", re.DOTALL)
_BARE = re.compile(r"Flag <Argument: (?P<name>[\w-]+).*> needed value")


class CommandLine(Program):
    """Invoke's program, which parses a command line and runs its tasks."""

    def __init__(self, namespace: Collection | None = None, called: str = "inv[oke]") -> None:
        """Create the program for the commands of `namespace`, or of a tasks.py that it finds."""
        names = ["invoke", "inv"] if namespace is None else [called]
        super().__init__(
            namespace=namespace, name="Tensorwright", binary=called, binary_names=names
        )

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002
        try:
            try:
                super().run(argv, exit)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            closed = [stream for stream in (sys.stdout, sys.stderr) if _is_reader_gone(stream)]
            if not closed:
                raise
            for stream in closed:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            sys.exit(READER_GONE)

    def print_version(self) -> None:
        try:
            self.version = metadata.version(SCRIPT)
        except metadata.PackageNotFoundError:
            self.version = "(checkout)"
        super().print_version()

    def core_args(self) -> list[Argument]:
        """Return Invoke's core options and ours.

        They apply to every task, and are accepted before its name or after it.
        """
        description = (
            "Install no packages and no bazelisk: if one is missing, print the commands and stop."
        )
        no_install = Argument(names=("no-install",), kind=bool, default=False, help=description)
        return [*super().core_args(), no_install]

    def parse_core(self, argv: list[str] | None) -> None:
        with self._convert_errors():
            super().parse_core(argv)
            list_format = self.args["list-format"].value
            if list_format not in _FORMATS:
                raise UsageError(
                    f"--list-format {list_format} is unknown", hint=_suggest_choices(_FORMATS)
                )

    def parse_tasks(self) -> None:
        named = find_help_task(self.core.unparsed)
        if named and named in self.collection:
            self.core[0].args["help"].value, self.core.unparsed = named, []
        with self._convert_errors():
            super().parse_tasks()
        if self.args["no-install"].value:
            os.environ[INSTALL] = "0"

    def parse_cleanup(self) -> None:
        with self._convert_errors():
            if isinstance(self.args.list.value, str):
                self._list_group(self.args.list.value)
                raise Exit
            super().parse_cleanup()

    def print_task_help(self, name: str) -> None:
        """Print the usage, the description and the options of a task.

        Unlike Invoke's help, it has no heading above the description, and does not show the
        old spellings of options, which are still accepted.
        """
        task, context = self.collection[name], self.parser.contexts[name]
        for option in task.options if isinstance(task, Command) else ():
            for old in option.old:
                context.flags.unalias(f"--{old}")
        rows = context.help_tuples()
        options = "[--options] " if rows else ""
        print(f"Usage: {self.binary} [--core-opts] {name} {options}[other commands ...]\n")
        if description := inspect.getdoc(task):
            print(f"{description}\n")
        if rows:
            print("Options:")
            self.print_columns(rows)

    def list_flat(self) -> None:
        groups = group_tasks(self.collection)
        self._print_groups({name: filter(_is_common, groups[name]) for name in groups})
        print(rewrite_commands(f"{LISTED}; invoke --list GROUP lists one group"))

    def _list_group(self, name: str) -> None:
        """Print the tasks of one group, or of all.

        Raises UsageError if there is no such group.
        """
        groups = group_tasks(self.collection)
        if name not in {EVERY, *groups}:
            suggestion = suggest_spelling(name, groups)
            raise UsageError(f"there is no group {name!r}", hint=_join_hint(suggestion, SEE_LIST))
        self._print_groups({group: groups[group] for group in groups if name in {EVERY, group}})

    def _print_groups(self, groups: Mapping[str, Iterable[TaskRow]]) -> None:
        shown = {group: tuple(rows) for group, rows in groups.items()}
        width = max(len(row.name) for rows in shown.values() for row in rows)
        for group, rows in shown.items():
            print(f"{group}:")
            self.print_columns([(row.name.ljust(width), row.help) for row in rows])

    def update_config(self, merge: bool = True) -> None:
        with self._convert_errors():
            super().update_config(merge)

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            raise _create_exit(error) from None
        except ParseError as error:
            tasks = self.parser.contexts if hasattr(self, "parser") else {}
            context = error.context or self.initial_context
            raise _create_exit(
                create_usage_error(str(error), context, self.argv[1:], tasks)
            ) from None
        except (UnknownFileType, ValueError) as error:
            # From a core option: the options of tasks stay text until the tasks run.
            raise _create_exit(UsageError(f"{error}", hint="See invoke --help")) from None


def find_help_task(words: Sequence[str]) -> str:
    """Return the task that --help directly follows, or "" if there is none.

    Invoke would take --help as the argument of a task that has a positional one.
    """
    for name, word in itertools.pairwise(words):
        if word in {"--help", "-h"} and not name.startswith("-"):
            return name
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """A task in the output of `--list`."""

    name: str
    help: str
    common: bool


def group_tasks(collection: Collection) -> dict[str, tuple[TaskRow, ...]]:
    """Return the tasks of each group, under the longest of their names.

    The default task of a group has the name of the group.
    """
    names: dict[Task[Any], str] = {}
    for primary, aliases in collection.task_names.items():
        task = collection[primary]
        names[task] = aliases[-1] if task.is_default and aliases else primary
    groups: dict[str, list[TaskRow]] = {}
    for task, name in names.items():
        command = task if isinstance(task, Command) else None
        row = TaskRow(
            name=name, help=helpline(task) or "", common=command is None or command.common
        )
        groups.setdefault(command.group if command else "tasks", []).append(row)
    return {group: tuple(rows) for group, rows in groups.items()}


def _create_exit(error: UsageError) -> Exit:
    return Exit(rewrite_commands(f"error: {error}"), error.exit_code)


def create_usage_error(
    message: str, context: ParserContext, words: Sequence[str], tasks: Mapping[str, ParserContext]
) -> UsageError:
    """Return the error for a command line of `words` that the parser refused.

    `message` is the parser's message. `context` is the task that it was parsing, or the core
    options before the first task.
    """
    if match := _UNKNOWN.fullmatch(message):
        return _create_unknown_error(match["word"], context, words, tasks)
    owner, help_of = _describe_owner(context)
    if match := _BARE.match(message):
        name = match["name"]
        return UsageError(f"{owner} --{name} needs a value", hint=f"See {help_of}")
    if context.missing_positional_args:
        missing = context.missing_positional_args[0]
        placeholder = str(missing.name).upper()
        return UsageError(
            f"{owner} needs {placeholder}: {missing.help}",
            hint=f"Run: invoke {owner} {placeholder}",
        )
    return UsageError(message, hint=f"See {help_of}")


def _describe_owner(context: ParserContext) -> tuple[str, str]:
    """Return the name of the task that has the options, and the command that lists them."""
    name = context.name or ""
    groups = [alias for alias in context.aliases if name.startswith(f"{alias}.")]
    owner = groups[0] if groups else name
    return owner or "invoke", f"invoke --help {owner}".rstrip()


def _create_unknown_error(
    word: str, context: ParserContext, words: Sequence[str], tasks: Mapping[str, ParserContext]
) -> UsageError:
    owner, help_of = _describe_owner(context)
    if word.startswith("-"):
        flags = [*filter(_is_long, context.flags), *context.inverse_flags]
        if context.name is None and any(word in task.flags for task in tasks.values()):
            hint = f"Put it after the command: invoke COMMAND {word}"
            return UsageError(f"{owner} has no option {word}", hint=hint)
        otherwise = f"See {help_of}"
        if "--bazelrc" in flags and word.startswith("--remote"):
            otherwise = "Put other options of Bazel in a file: --bazelrc FILE"
        return UsageError(
            f"{owner} has no option {word}",
            hint=_join_hint(suggest_spelling(word, flags), otherwise),
        )
    before = _find_flag_before(word, context, words)
    if before is not None:
        flag, argument = before
        if not argument.takes_value:
            return UsageError(
                f"{flag} takes no value, but {word!r} follows it",
                hint=f"See {help_of}. {SEE_LIST}",
            )
        return UsageError(
            f"{flag} is given twice, the second time as {word!r}", hint="Give it once"
        )
    return UsageError(
        f"there is no command {word!r}", hint=_join_hint(suggest_spelling(word, tasks), SEE_LIST)
    )


def _find_flag_before(
    word: str, context: ParserContext, words: Sequence[str]
) -> tuple[str, Argument] | None:
    """Return the task's flag before the word (`--flag word` or `--flag=word`), or None."""
    flat = [
        part
        for argument in words
        for part in (argument.split("=", 1) if _is_long(argument) else [argument])
    ]
    for flag, value in itertools.pairwise(flat):
        if value == word and context.name is not None and flag in context.flags:
            return flag, context.flags[flag]
    return None


def suggest_spelling(word: str, known: Iterable[str]) -> str:
    from tfcore import console  # (a slow import, needed only for errors)

    return console.suggest_spelling(word, tuple(known))


def _is_common(row: TaskRow) -> bool:
    return row.common


def _is_long(word: str) -> bool:
    return word.startswith("--")


def _join_hint(near: str, otherwise: str) -> str:
    return f"{near} {otherwise}".strip()


def _suggest_choices(names: Sequence[str]) -> str:
    from tfcore import console  # (a slow import, needed only for errors)

    return f"Use {console.format_choices(names)}"


def _is_reader_gone(stream: TextIO) -> bool:
    """Return True if the reader of the stream has closed it."""
    waiting = select.poll()
    with contextlib.suppress(OSError, ValueError):  # (the stream has no file descriptor)
        waiting.register(stream.fileno(), 0)
    ends = select.POLLERR | select.POLLHUP
    return any(event & ends for _, event in waiting.poll(0))
