"""Render templates. The only import of jinja2; an undefined variable of a template is an error.

Templates of scripts never contain text of a user. Templates of pages do, and all of it is escaped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"


@cache
def _make_environment(*, escapes: bool) -> jinja2.Environment:
    import jinja2  # a third of the start-up time, and `recipe check` renders nothing

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=escapes,
        auto_reload=False,  # templates do not change while recipe runs
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **names: object) -> str:
    """Render a template of `data/templates`."""
    return _make_environment(escapes=False).get_template(template).render(**names)


def render_page(template: str, **names: object) -> str:
    """Render a template of HTML; all values are escaped."""
    return _make_environment(escapes=True).get_template(template).render(**names)


@cache
def read_template(name: str) -> str:
    """Read a file of `data/templates` that plans contain unchanged."""
    return (TEMPLATES / name).read_text(encoding="utf-8")
