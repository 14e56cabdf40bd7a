"""All commands together: one word and one short flag for one thing, and old spellings that last."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict

import pytest
from invoke.parser import Parser

from tensorwright.command import SHORT, Command
from tensorwright.commandline import CommandLine
from tensorwright.program import collect_commands
from tfcore.settings import ROOT

COMMANDS: dict[str, Command] = {
    name: collect_commands()[name] for name in collect_commands().task_names
}
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/*.md"))
    if path.name != "CHANGELOG.md"
)


def typed(line: str) -> dict[str, object]:
    """What a command gets of a line."""
    contexts = Parser(contexts=collect_commands().to_contexts()).parse_argv(line.split())
    return dict(contexts[0].as_kwargs)


def test_a_short_flag_is_one_options_in_every_command() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for argument in command.get_arguments():
            for short in (name for name in argument.names if len(name) == 1):
                meanings[short].add(argument.names[0])
    assert {short: {name} for name, short in SHORT.items()} == dict(meanings)


def test_common_things_have_common_words() -> None:
    """The words for what these would say otherwise; lists of wheels that are published are no
    arms."""
    other_names = {
        "for",
        "model",
        "program",
        "models",
        "nets",
        "cpus",
        "threads",
        "minutes",
        "folder",
    }
    for name, command in COMMANDS.items():
        words = {option.name for option in command.options}
        assert not words & other_names, name
        assert "wheels" not in words or name == "publish"


def test_a_switch_is_none_of_two_kinds() -> None:
    kinds: dict[str, set[bool]] = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.options:
            kinds[option.name].add(option.is_switch)
    several = {name for name, kind in kinds.items() if len(kind) > 1}
    assert not several


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("build --for lstm_text", "workload", "lstm_text"),
        ("profile --for lstm_text", "workload", "lstm_text"),
        ("select --for lstm_text", "workload", "lstm_text"),
        ("tune --for lstm_text", "workload", "lstm_text"),
        ("tune --wheels stock,tuned", "arms", "stock,tuned"),
        ("overhead --for iris_mlp", "workload", "iris_mlp"),
        ("accuracy --import curve.tsv", "import_", "curve.tsv"),
        ("accuracy --target 97%", "reach", "97%"),
        ("install-snippet --target zen4", "arch", "zen4"),
        ("publish --rebuild", "reindex", True),
        ("render --check", "verify", True),
        ("publish --no-gate", "gate", False),
        ("audit x.whl --no-fetch", "fetch", False),
        ("build --no-preflight", "preflight", False),
    ],
)
def test_old_spellings_are_read(line: str, field: str, value: object) -> None:
    assert typed(line)[field] == value


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_shows_one_spelling(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        CommandLine(collect_commands(), "inv").run(["inv", "--help", name])
    shown = set(re.findall(r"--(?:\[no-\])?([a-z][a-z0-9-]*)[=, ]", capsys.readouterr().out))
    options = COMMANDS[name].options
    assert {option.name for option in options if option.default is not None} <= shown
    assert not shown & {old for option in options for old in option.old}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_shows_the_description_without_a_heading(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        CommandLine(collect_commands(), "inv").run(["inv", "--help", name])
    usage, description, options, *_ = capsys.readouterr().out.split("\n\n")
    assert usage.startswith(f"Usage: inv [--core-opts] {name} ")
    assert description == inspect.getdoc(COMMANDS[name])
    assert len(description.splitlines()) == 1, "the line that --list shows"
    assert options.startswith("Options:\n  -") == bool(COMMANDS[name].options)


def test_every_option_that_a_page_names_behind_a_command_is_read() -> None:
    known = {
        name: {word for argument in COMMANDS[name].get_arguments() for word in argument.names}
        for name in COMMANDS
    }
    count = 0
    for path in PAGES:
        for line in path.read_text("utf-8").splitlines():
            for name, remainder in re.findall(
                r"(?:\./inv|\binvoke) ([a-z.-]+)((?: [^`#|]*)?)", line
            ):
                if name not in known:
                    continue
                for word in re.findall(r"(?<= )--([a-z][a-z0-9-]*)", remainder.partition("; ")[0]):
                    own_names = known[name] | {"no-install"}
                    assert word in own_names or word.removeprefix("no-") in own_names, (
                        f"{path}: {line}"
                    )
                    count += 1
    assert count > 50
