"""Templates to text. The only import of jinja2; a name that a template does not know is an error.

Scripts take no text of a user through a template; pages do, and everything that goes into them is escaped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"


@cache
def _environment(*, escapes: bool) -> jinja2.Environment:
    import jinja2  # a third of a start: `recipe check` renders nothing

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=escapes,
        auto_reload=False,  # a template is read once and never looked at again
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **names: object) -> str:
    """Render a template of `data/templates`."""
    return _environment(escapes=False).get_template(template).render(**names)


def render_page(template: str, **names: object) -> str:
    """Render a template of HTML: whatever goes into it is escaped."""
    return _environment(escapes=True).get_template(template).render(**names)


@cache
def read_template(name: str) -> str:
    """Return a file of `data/templates` that is copied into plans as it is."""
    return (TEMPLATES / name).read_text(encoding="utf-8")
