"""A command: an Invoke task with options from records, which prints each error as one line."""

from __future__ import annotations

import functools
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from tfcore.option import Option, OptionSubset, build_record, list_options

SCRIPT = "tensorwright"
"""The name of the console script."""
SHORT = {
    "arms": "a",
    "budget": "b",
    "dry-run": "n",
    "json": "j",
    "out": "o",
    "vcpus": "v",
    "workload": "W",
    "workloads": "w",
}
"""The short flags of options, the same in every command."""


class Command(Task[Callable[..., None]]):
    """A task whose options are declared by records.

    `sources` are the records that the command takes, or subsets of their options.
    `--list all` shows the command in its `group`; `--list` alone shows only `common` commands.
    """

    def __init__(
        self,
        body: Callable[..., None],
        *,
        sources: tuple[type | OptionSubset, ...],
        group: str,
        common: bool,
        default: bool,
        name: str | None,
    ) -> None:
        super().__init__(body, name=name, positional=(), default=default)
        self.options = tuple(option for source in sources for option in list_options(source))
        self.group, self.common = group, common

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: ARG002
        """Return the options as arguments, the positional ones first."""
        ordered = sorted(self.options, key=lambda option: option.default is not None)
        return [_build_argument(option) for option in ordered]


def _build_argument(option: Option) -> Argument:
    short = (SHORT[option.name],) if option.name in SHORT else ()
    return Argument(
        names=(option.name, *short, *option.old),
        kind=bool if option.is_switch else str,
        default=option.default,
        help=rewrite_commands(option.help),
        positional=option.default is None,
        attr_name=option.field if option.field != option.name else None,
    )


def command(
    group: str,
    *sources: type | OptionSubset,
    common: bool = False,
    default: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., str | None]], Command]:
    """Turn a function of these records into a command that prints its return value."""

    def decorate(function: Callable[..., str | None]) -> Command:
        @functools.wraps(function)
        def run_body(context: Context, **values: str | bool) -> None:
            from tfcore.errors import TensorwrightError, UsageError

            stop_on_signals()
            try:
                if context.config.run.dry:
                    raise UsageError(
                        "--dry before a command is not supported",
                        hint="Use --dry-run after the command",
                    )
                print_text(function(*(build_record(source, values) for source in sources)) or "")
            except TensorwrightError as error:
                raise Exit(rewrite_commands(f"error: {error}"), error.exit_code) from None
            except KeyboardInterrupt as stop:
                code = stop.args[0] if stop.args else 128 + signal.SIGINT
                raise Exit("stopped. What is finished is kept", code) from None
            except BrokenPipeError:  # (an OSError that CommandLine.run handles)
                raise
            except OSError as error:
                path = f" ({error.filename})" if error.filename else ""
                raise Exit(f"error: {error.strerror or error}{path}", 18) from None

        return Command(
            run_body, sources=sources, group=group, common=common, default=default, name=name
        )

    return decorate


def print_text(text: Any) -> None:  # noqa: ANN401
    """Print a text to standard output and flush it, because the next step may fail."""
    print(rewrite_commands(str(text)), end="", flush=True)


def rewrite_commands(text: str) -> str:
    """Replace `invoke X` in a text with `tensorwright X` if the console script runs.

    Texts use the form of a checkout, `invoke X`.
    """
    if Path(sys.argv[0]).name != SCRIPT:
        return text
    return re.sub(r"\binvoke (?=[a-z-])", f"{SCRIPT} ", text)


def stop_on_signals() -> None:
    """Make SIGTERM, and SIGHUP without nohup, stop a task as Ctrl-C does.

    The programs that the task started stop too.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, stop)
