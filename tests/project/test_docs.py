"""README and the pages in docs/: their commands, options and links are there, and what they show of
a run is what this version makes of it."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.command_names import ARTICLES, NAMES
from tests.builders.recordings import RECORDINGS

from tensorwright.program import collect_commands
from tfbench.measuring.replay import recompute_comparison
from tfbench.reports import page, report
from tfcore.comparisons.comparison import Comparison
from tfcore.settings import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = "sapphire-rapids-eleven-models"
PICTURE = ROOT / "docs" / f"{SHOWN}.svg"
# Options that pages name of other programs.
FOREIGN = {
    "Bazel": (
        *("--copt", "--define", "--distinct_host_configuration", "--config"),
        *("--experimental_link_static_libraries_once", "--bes_header"),
        *("--remote_header", "--remote_cache_header", "--remote_default_exec_properties"),
        *("--remote_cache", "--remote_executor", "--remote_instance_name"),
        *("--tls_certificate", "--tls_client_certificate", "--tls_client_key"),
    ),
    "pip and uv": ("--no-deps", "--target", "--index-url", "--extra-index-url"),
    "the kit": ("--phases", "--workloads", "--arm"),
}
OURS = re.compile(r"(?:\./inv|\binvoke) ([a-z].*)")
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Every task's, under each of its names."""
    commands = collect_commands()
    return {
        name: {
            f"--{'no-' if inverse else ''}{word.replace('_', '-')}"
            for argument in commands[name].get_arguments()
            for word in argument.names
            for inverse in ({False, True} if argument.kind is bool else {False})
        }
        for name in NAMES | {f"articles.{name}" for name in ARTICLES}
    }


def code(path: Path) -> Iterator[str]:
    """Each line of a page's blocks, and each word in backquotes, however a line breaks it."""
    text = path.read_text("utf-8")
    for block in FENCED.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    for span in CODE.findall(FENCED.sub("", text)):
        yield " ".join(span.split())


def calls(path: Path) -> Iterator[list[str]]:
    """The words after `invoke` or `./inv` wherever a page says it, to the next program."""
    for line in code(path):
        for actual in OURS.findall(line):
            first = re.split(r" (?:&&|\|) ", actual)[0]
            yield shlex.split(first.replace("…", ""), comments=True)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_and_option_that_a_page_names_exists(
    path: Path, options: dict[str, set[str]]
) -> None:
    for name, *words in calls(path):
        assert name in options, f"{path.name}: invoke {name}"
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options[name], f"{path.name}: invoke {name}"
    known = {"--help", "--list", "--no-install"}.union(*options.values(), *FOREIGN.values())
    for line in code(path):
        if line.startswith("--"):
            assert line.split()[0].partition("=")[0] in known, f"{path.name}: {line}"


def test_pages_of_commands_are_read_at_all() -> None:
    assert len(list(calls(README))) > 6
    assert all(any(calls(ROOT / "docs" / f"{name}.md")) for name in ("building", "comparing"))


def test_the_pages_name_every_task() -> None:
    named = {words[0] for path in PAGES for words in calls(path) if words}
    assert named >= NAMES
    listed = {words[0] for words in calls(ROOT / "docs" / "commands.md")}
    assert listed >= NAMES, "docs/commands.md has all of them"


def anchors(path: Path) -> set[str]:
    """What a forge calls the headings of a page."""
    heading_text = (
        re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(path.read_text())
    )
    return {name.replace(" ", "-") for name in heading_text}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in (first or second for first, second in LINK.findall(path.read_text("utf-8"))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file) if file else path
        assert linked.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{path.name}: {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {
        (README.parent / actual[0].partition("#")[0]).resolve()
        for actual in LINK.findall(README.read_text())
    }
    assert {path for path in PAGES if path != README} <= linked


# The run that README shows ------------------------------------------------------------------------


@functools.cache
def shown() -> Comparison:
    return recompute_comparison(RECORDINGS / SHOWN)[0]


def test_the_picture_is_what_the_report_draws_of_the_recording() -> None:
    assert PICTURE.read_text("utf-8") == page.render_speedup_files(shown())["speedups-1.svg"], (
        f"invoke report --samples tests/data/recordings/{SHOWN} --out FOLDER; copy speedups-1.svg"
    )
    assert f"docs/{PICTURE.name}" in README.read_text("utf-8")


def test_the_table_is_what_the_report_prints_of_the_recording() -> None:
    printed = report.format_table(shown(), colour=False).splitlines()
    table = next(block for block in FENCED.findall(README.read_text("utf-8")) if "━" in block)
    lines = [line for line in table.splitlines() if line]
    assert len(lines) > 12  # eleven models, and what is above and below
    assert [line for line in lines if line not in printed] == []
