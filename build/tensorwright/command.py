"""A command: a task whose options are declared by records, and whose errors become one line."""

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

from tfbuild.option import Option, OptionSubset, made, options_of

SCRIPT = "tensorwright"
"""What the console script is called."""
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
"""The short flags: the same ones for all commands."""


class Command(Task[Callable[..., None]]):
    """`sources` are the records that it takes, or parts of them. `--list` shows it in its `group`,
    and without being asked for all where it is `common`."""

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
        self.options = tuple(each for source in sources for each in options_of(source))
        self.group, self.common = group, common

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: ARG002
        """Those that are given by their place come first."""
        ordered = sorted(self.options, key=lambda each: each.default is not None)
        return [_argument(each) for each in ordered]


def _argument(option: Option) -> Argument:
    short = (SHORT[option.name],) if option.name in SHORT else ()
    return Argument(
        names=(option.name, *short, *option.old),
        kind=bool if option.is_switch else str,
        default=option.default,
        help=as_called(option.help),
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
    """A function of these records, whose answer is printed."""

    def decorate(function: Callable[..., str | None]) -> Command:
        @functools.wraps(function)
        def body(context: Context, **values: str | bool) -> None:
            from tfbuild.errors import TensorwrightError, UsageError

            stop_on_signals()
            try:
                if context.config.run.dry:
                    raise UsageError(
                        "--dry before a command's name holds nothing back",
                        hint="Write --dry-run behind it",
                    )
                say(function(*(made(source, values) for source in sources)) or "")
            except TensorwrightError as error:
                raise Exit(as_called(f"error: {error}"), error.exit_code) from None
            except KeyboardInterrupt as stop:
                code = stop.args[0] if stop.args else 128 + signal.SIGINT
                raise Exit("stopped. The next run continues where this one was", code) from None
            except BrokenPipeError:  # (of OSErrors the one that is the program's to tell)
                raise
            except OSError as error:
                where = f" ({error.filename})" if error.filename else ""
                raise Exit(f"error: {error.strerror or error}{where}", 18) from None

        return Command(
            body, sources=sources, group=group, common=common, default=default, name=name
        )

    return decorate


def say(text: Any) -> None:  # noqa: ANN401
    """To standard output, at once: what follows may fail."""
    print(as_called(str(text)), end="", flush=True)


def as_called(text: str) -> str:
    """Texts name commands as a checkout has them, `invoke X`."""
    if Path(sys.argv[0]).name != SCRIPT:
        return text
    return re.sub(r"\binvoke (?=[a-z-])", f"{SCRIPT} ", text)


def stop_on_signals() -> None:
    """SIGTERM, and SIGHUP without nohup, stop a task as Ctrl-C does: what it runs ends with it."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, stop)
