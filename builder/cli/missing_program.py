"""A program that `recipe run` names and its image does not have: our line in the place of the engine's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from builder.inspect.image_programs import list_folders
from builder.model.finding import Finding, find_nearest
from builder.model.text import sanitize
from builder.sif.reader import Reader
from builder.sif.sif import SifError, read_sif
from builder.sif.squashfs import SquashfsError

NOT_FOUND = 127  # as in a shell; Apptainer 1.4.5 exits with 255
NEAR = 0.7  # likeness of a name that is worth a question
# Apptainer 1.4.5 and SingularityCE for a name and for a path; bash for a folder with wrappers.
WORDS = (
    rb'FATAL:\s+"%s": executable file not found in \$PATH\n',
    rb"FATAL:\s+stat (?:%s|[^\n]*/%s): no such file or directory\n",
    rb"[^\n]*line \d+: exec: %s: not found\n",
)


class MissingProgram:
    """A program that was not found in an image before the run; binds and the user's PATH may still bring it."""

    def __init__(self, image: Path, name: str, *, known: frozenset[str]) -> None:
        self._image, self._name, self._known = image, name, known
        words = [form.replace(b"%s", re.escape(os.fsencode(name.removeprefix("./")))) for form in WORDS]
        self._pattern = re.compile(b"|".join(words))
        self.reported = False  # the engine has said that there is no such program

    def remove_error(self, data: bytes) -> bytes:
        """What is left of the output without the engine's words on the program."""
        left, count = self._pattern.subn(b"", data)
        self.reported = self.reported or bool(count)
        return left

    def explain(self) -> Finding:
        image, name = sanitize(self._image.name, limit=400), sanitize(self._name, limit=400)
        near = find_nearest(self._name, known=self._known, cutoff=NEAR)
        message = f"the program '{name}' is not in the PATH of the image '{image}'"
        if "/" in self._name:
            message = f"there is no program '{name}', neither in the image '{image}' nor in what is bound into it"
        contents = f"`recipe inspect {shlex.quote(sanitize(str(self._image), limit=400))}` lists what is in the image"
        fix = f"did you mean '{near}'? {contents}" if near else contents
        return Finding(code="no-program", message=message, fix=fix)


def find_missing_program(image: Path, name: str) -> MissingProgram | None:
    """The program, if an image does not have it; None where it has it, or where that is not known.

    A file system that only an engine reads is not known.
    """
    if (image / "bin").is_dir():  # an installation with wrappers, before the PATH of this machine
        known = frozenset(path.name for path in (image / "bin").iterdir())
        there = "/" in name or name in known or shutil.which(name) is not None
        return None if there else MissingProgram(image, name, known=known)
    try:
        with image.open("rb") as file:
            reader = Reader(file, offset=read_sif(image).system.offset)
            if "/" in name:
                there = reader.find(name) is not None if name.startswith("/") else Path(name).exists()
                return None if there else MissingProgram(image, name, known=frozenset())
            known = frozenset[str]().union(*list_folders(reader).values())
    except (SifError, SquashfsError, OSError):
        return None
    return None if name in known or not known else MissingProgram(image, name, known=known)
