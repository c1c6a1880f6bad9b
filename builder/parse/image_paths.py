"""Where a path of an image comes from: what a build file copies into it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from builder.model.text import exists, is_folder, sanitize
from builder.parse.build_file import BuildStep, has_variable

GLOB = re.compile(r"[*?\[]")
GLOB_LIMIT = 100  # files of one pattern


@dataclass(kw_only=True)
class ImagePaths:
    """The copies so far. `folder` is what sources are relative to, `prefix` the way there from the recipe's folder."""

    folder: Path
    prefix: str
    context: bool  # of Docker: nothing outside of the folder can be copied
    folder_inside: str = ""  # that commands begin in; "" as long as none is set
    copies: list[tuple[str, str, int]] = field(default_factory=list)  # source, target, line
    read: set[str] = field(default_factory=set)  # sources that the recipe has by their content

    def set_folder(self, path: str) -> None:
        self.folder_inside = self.join(path)

    def join(self, path: str) -> str:
        """The full path of one inside the image."""
        path = f"/root{path[1:]}" if path == "~" or path.startswith("~/") else path
        return posixpath.normpath(posixpath.join("/", self.folder_inside, path)).replace("//", "/")

    def name_source(self, source: str) -> str:
        """The path of a source from the recipe's folder."""
        return posixpath.normpath(posixpath.join(self.prefix, source))

    def add_copy(self, step: BuildStep) -> Iterator[tuple[str, str]]:
        """Note a copy; yields each source that cannot be copied, and why."""
        if has_variable(step.target):
            yield step.text, "its target depends on a variable"
            return
        found = []
        for source in step.sources:
            names = list(self._list_sources(source))
            if not names:
                yield source, f"there is no '{sanitize(source)}' in the folder of the file"
            found += names
        into = step.target.endswith(("/", ".")) or len(found) > 1 or self.join(step.target) == self.folder_inside
        for name in found:
            target = self.join(step.target)
            if not is_folder(self.folder / name) and (into or target == "/"):
                target = posixpath.join(target, posixpath.basename(name))
            self.copies.append((name, target, step.line))

    def _list_sources(self, source: str) -> Iterator[str]:
        """The files and folders that a source names; `/x` of Docker is relative to the folder, too."""
        plain = posixpath.normpath(source.lstrip("/") if self.context else source)
        if has_variable(source) or plain == ".." or plain.startswith("../"):
            return
        if not GLOB.search(plain):
            if exists(self.folder / plain):
                yield plain
            return
        if plain.startswith("/") or "**" in plain:
            return
        for index, path in enumerate(sorted(self.folder.glob(plain))):
            if index < GLOB_LIMIT:
                yield path.relative_to(self.folder).as_posix()

    def _can_read(self, source: str) -> bool:
        """Whether a source is in the folder itself, and no link out of it."""
        path = self.folder / source
        return exists(path) and path.resolve().is_relative_to(self.folder.resolve())

    def find_source(self, path: str) -> str:
        """The source of a path that a command names; "" for one that the build itself makes, or that is elsewhere."""
        inside = self.join(path)
        found = ""
        for source, target, _ in self.copies:
            rest = inside.removeprefix(target.rstrip("/") + "/")
            if inside == target:
                found = source
            elif rest != inside and exists(self.folder / source / rest):
                found = posixpath.normpath(posixpath.join(source, rest))
        plain = posixpath.basename(inside)  # of a mount, or of a folder that something else fills
        if not found and plain and path not in (".", "./") and (self.folder / plain).is_file():
            found = plain
        return found if found and self._can_read(found) else ""
