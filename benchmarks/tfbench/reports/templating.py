"""Render Jinja templates. An undefined name is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_template(templates: Path, name: str, **values: object) -> str:
    """Render the template `name`. Values are escaped for HTML in HTML templates."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(values)
