"""Another machine: a user without a range of ids, whose temporary folder is a disk of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipe_program import Done, Room, program, run

SCRIPT = (
    'mount -t tmpfs -o "$0" tmpfs "$1" && mount --bind "$2" /etc/subuid && mount --bind "$2" /etc/subgid && '
    'shift 2 && exec "$@"'
)


def on_another_machine(
    room: Room, words: Sequence[str | Path], *, tmpfs: str, umask: int = -1, **environment: str
) -> Done:
    """Run `recipe` in a mount namespace of the user's own: a tmpfs is the disk, the files that give ranges are empty.

    So it is on supercomputers, and the engine's own helper for ranges would refuse to work in such a namespace.
    """
    small, nothing = room.folder / "small", room.write("nothing", "")
    small.mkdir()
    namespace = ["unshare", "--user", "--map-current-user", "--mount", "--keep-caps", "sh", "-c", SCRIPT]
    return run(
        [*namespace, tmpfs, small, nothing, program(), *words, "--tmpdir", small],
        env=room.environment(**environment),
        cwd=room.folder,
        umask=umask,
    )
