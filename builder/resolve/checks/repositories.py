"""Checks of requirements that are repositories."""

from __future__ import annotations

import re
from collections.abc import Iterator

from builder.model.finding import Finding
from builder.model.target import Target
from builder.resolve.checks.packages import locate


def check_git_key(target: Target) -> Iterator[Finding]:
    """Report a repository over SSH: a build has neither the user's keys nor the keys of hosts."""
    for line in target.recipe.pip:
        if not line.url.startswith("git+ssh://"):
            continue
        plain = re.sub(r"^git\+ssh://(?:[^@/]*@)?([^:/]+)(?::\d+)?/", r"git+https://\1/", line.url)
        message = f"'{line.text}' is cloned over SSH, and a build has no keys"
        own = "build a wheel of it and give its address"
        if not target.traits.one_call and (target.backend != "layers" or target.site.build.fakeroot != "no"):
            own = "clone it next to the file and name its folder, as in ./NAME"
        fix = f"write {line.text.replace(line.url, plain)} if all may read it, else {own}"
        yield Finding(code="build-needs", message=message, at=locate(target.recipe, line), fix=fix)
