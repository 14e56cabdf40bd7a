from __future__ import annotations

import ast
from pathlib import Path

import jinja2
import jinja2.meta
import pytest
from tests.builders import container_files
from tests.builders.plans import planned, planned_full

from tfbuild.planning import containers
from tfbuild.planning.render import build_contexts
from tfcore.settings import ROOT, TEMPLATES

NAMES = sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*") if path.is_file())
# Templates of other modules, which give their context in one call of these.
FILLED = ("render", "render_template")
ELSEWHERE = {
    "dispatcher_targets.h.j2": ROOT / "build/tfbuild/planning/dispatcher.py",
    "report.md.j2": ROOT / "benchmarks/tfbench/reports/report.py",
    "report.html.j2": ROOT / "benchmarks/tfbench/reports/page.py",
    "docs/verified.md.j2": ROOT / "tests/tools/verified.py",
    "method.txt.j2": ROOT / "benchmarks/tfbench/reports/method.py",
}

# What each template is given, of plans of both scopes and of containers.
EVERY = (
    build_contexts(planned()),
    build_contexts(planned_full()),
    containers.build_contexts(
        container_files.fleet(container_files.CASES["containers-full"][0]),
        kernels="hot",
        vcpus=None,
    ),
)


def given(name: str) -> set[str]:
    """The names that the code gives to a template."""
    if name in ELSEWHERE:
        return keywords_of_filling(ELSEWHERE[name])
    actual = {
        template: set(context) for contexts in EVERY for template, context in contexts.items()
    }
    return actual[name]


def keywords_of_filling(module: Path) -> set[str]:
    calls = [
        node
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in FILLED
    ]
    assert len(calls) == 1
    return {keyword.arg for keyword in calls[0].keywords if keyword.arg}


@pytest.mark.parametrize("name", NAMES)
def test_templates_use_all_that_they_are_given_and_nothing_else(name: str) -> None:
    tree = jinja2.Environment(autoescape=False).parse((TEMPLATES / name).read_text("utf-8"))  # noqa: S701  (only parsed)
    assert jinja2.meta.find_undeclared_variables(tree) == given(name)


def test_every_template_is_used() -> None:
    used = {name for context in EVERY for name in context}
    assert sorted(used | set(ELSEWHERE)) == NAMES
