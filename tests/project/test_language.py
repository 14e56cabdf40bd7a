"""Names and texts are plain English: functions begin with verbs, and retired words are gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfcore.settings import ROOT

PACKAGES = (
    "build/tensorwright",
    "build/tfcore",
    "build/tfbuild",
    "wheels/tfwheels",
    "benchmarks/tfbench",
)
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.j2"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
VERBS = frozenset(
    """
    adapt add adjust admit adopt advance advise align amend amortise answer apply ask
    assemble assign attribute audit augment average begin block build calibrate
    call can check choose classify clean close collect combine compare compile compose
    compute confirm convert convolve copy count create cut decide decode decorate decrypt defer
    define demangle derive describe detect diagnose disassemble discard distribute do
    doctor download draw dump encode end escape estimate evaluate examine exclude expand
    explain explore export extend extract feed fetch fill filter find finish fit flatten
    flip follow force forget fork format gather generate get group guard halve handle
    has hash identify ignore import increase indent index infer insert inspect install
    invert is iter join judge keep kill limit link list load locate lock log make
    map match measure merge move name need needs normalise normalize nudge observe open
    pack paint pair parse pause pin place plan plot pool predict prefetch prepare
    preprocess print probe process profile propose publish put query quote rank rate
    read rebuild receive recompile recompute record redact reduce refuse reindex
    remember remove rename render renew repack repeat replace reply report require reset
    resize resolve respond restore restrict retrace rewrite round run sample sanitize
    save search seek select send serialise serialize serve set shade share shorten
    shuffle sign solve sort split stack start step stop store strip style submit
    substitute subtract suggest sum summarise summarize survey swap sync tabulate take
    tell test time trace track train transfer try tune unpack unquote unwrap update
    upload use validate vendor verify wait walk warm warn write
    """.split()  # noqa: SIM905
)
"""The verbs that functions begin with; add one if a new function needs it."""
VERB_SHARE = 0.95
PREDICATES = ("is", "has", "can", "needs")
RETIRED = re.compile(
    r"\b(fewer products|minimal filtering|vouch(?:ed|es)?|(?:is|are|was|were|be|not) admitted"
    r"|(?:near|far) sources|stand-ins?|leaves? out 1|quick look|stock again|within noise"
    r"|told (?:apart )?from noise|improved kernels?|units? of (?:our|its|their) own|papers)\b",
    re.IGNORECASE,
)
"""Words of earlier versions; CONTRIBUTING.md has what is said instead."""

STORED = {"within noise", "stock again"}
"""Words in files of earlier versions, which are still read."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def list_functions() -> Iterator[tuple[Path, Function]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, Function) and not node.name.startswith("__"):
                yield path, node


def is_property(function: Function) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def get_first_word(function: Function) -> str:
    return function.name.lstrip("_").partition("_")[0]


def test_functions_begin_with_a_verb() -> None:
    functions = [(path, node) for path, node in list_functions() if not is_property(node)]
    other_lines = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in functions
        if get_first_word(node) not in VERBS
    ]
    assert len(other_lines) <= (1 - VERB_SHARE) * len(functions), "\n".join(other_lines)


def test_every_listed_verb_is_used() -> None:
    used = {get_first_word(node) for _, node in list_functions()}
    assert sorted(VERBS - used) == []
    assert set(PREDICATES) <= VERBS


def list_texts(path: Path) -> Iterator[str]:
    """Yield the strings of a source file that are texts, docstrings and names excluded."""
    tree = ast.parse(path.read_text("utf-8"))
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            text = node.value
            if isinstance(text, str) and " " in text and text not in STORED:
                yield text


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_have_no_retired_word(path: Path) -> None:
    actual = {text: RETIRED.findall(text) for text in list_texts(path)}
    assert {text: words for text, words in actual.items() if words} == {}


@pytest.mark.parametrize("path", [*PAGES, *TEMPLATES], ids=lambda path: path.name)
def test_pages_have_no_retired_word(path: Path) -> None:
    text = path.read_text("utf-8").partition("\nRetired words:")[0]
    lines = [line for line in text.splitlines() if RETIRED.search(line)]
    assert lines == []


def test_retired_words_are_recognised() -> None:
    assert RETIRED.search("A quick look: fewer than 4 launches")
    assert not RETIRED.search("conformance test passed")
