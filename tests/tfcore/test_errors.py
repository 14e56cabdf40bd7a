from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import pytest

import tfbuild
from tfcore.errors import CommandError, FailedTests, TensorwrightError, TimeLimitError, UsageError

USED_BY_THE_COMMANDS = {0, 1, 130}


def whole_tree(package: ModuleType = tfbuild) -> Iterator[type[TensorwrightError]]:
    """Every class of the tree: whichever module of the package defines it."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.startswith(("tfbuild.probe", "tfbuild.shipped")):
            importlib.import_module(module.name)
    todo = [TensorwrightError]
    while todo:
        error = todo.pop()
        yield error
        todo += error.__subclasses__()


def test_every_error_has_an_exit_code_of_its_own() -> None:
    codes = Counter(error.exit_code for error in whole_tree())
    assert [code for code, times in codes.items() if times > 1] == []


def test_no_error_is_taken_for_success_a_crash_or_ctrl_c() -> None:
    own_numbers = {error.exit_code for error in whole_tree() if error is not TensorwrightError}
    assert not own_numbers & USED_BY_THE_COMMANDS
    assert all(0 < code < 126 for code in own_numbers)  # (the shell's own codes begin at 126)


def test_every_error_says_what_it_is_for() -> None:
    assert all((error.__doc__ or "").strip() for error in whole_tree())


@pytest.mark.parametrize(
    ("message", "hint", "text"),
    [
        ("no such target", "", "no such target"),
        ("no such target", "Run: invoke targets", "no such target. Run: invoke targets"),
        ("tried:\n  - one\n", "Pass --source", "tried:\n  - one\nPass --source"),
    ],
)
def test_a_hint_follows_the_message(message: str, hint: str, text: str) -> None:
    error = UsageError(message, hint=hint)
    assert str(error) == text
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize("message", ["x exited with 1:\n  no such file \n\n", "no such file"])
def test_a_failed_commands_reason_is_its_last_line(message: str) -> None:
    assert CommandError(message).last_line == "no such file"


def test_a_time_limit_is_a_failed_command_of_its_own_code() -> None:
    assert TimeLimitError("x").exit_code != FailedTests("x").exit_code
    assert [error.__name__ for error in TimeLimitError.__mro__[1:3]] == [
        "CommandError",
        "TensorwrightError",
    ]
