"""Trees of files are copied, changed and removed in one place, which follows no link of somebody else."""

from __future__ import annotations

import ast

from support.own_code import PACKAGE, files, nodes_of

# Who copies, changes or removes trees by their paths; everywhere else sif/tree.py and copies.py do.
FOLLOWING = {"walk", "fwalk", "rmtree", "copytree", "copy2", "copyfile", "copymode", "copystat", "rglob", "lchown"}
FOLLOWING |= {"chown", "removedirs", "renames"}
ALLOWED = {
    ("layers/cache.py", "copyfile"),  # a file whose folders and owner were looked at; its SHA-256 is compared
    ("inspect/origin.py", "walk"),  # looks at what goes into an image, and follows no link
    ("layers/bytecode.py", "copyfile"),  # a file of the cache to a new folder of the build's own
    ("slurm/submitted_jobs.py", "copy2"),  # plan.json to a new folder of the program's own
    ("execute/reproduction.py", "copyfile"),  # the log of a second build, out of a folder that it made
    ("inspect/filesystems.py", "walk"),  # reads only, and opens what a walk without links has named
    ("smoke/ranks.py", "rmtree"),  # runs inside images, on a folder of its own in /tmp
    ("smoke/distributed.py", "rmtree"),  # the same
    ("sif/errors.py", "walk"),  # sizes alone, for a progress bar; follows no link
    ("data/templates/times.py", "walk"),  # runs inside an image while it is built
    ("data/templates/relocate.py", "walk"),  # changes a copy that tykky makes, in its container; follows no link
}  # fmt: skip


def test_security_01_file_work_on_trees_is_done_in_one_place() -> None:
    found = set()
    for path in files():
        name = str(path.relative_to(PACKAGE))
        for node in nodes_of(path):
            if not (isinstance(node, ast.Attribute) and node.attr in FOLLOWING):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("tree", "ast"):
                continue  # this project's own walk, which follows nothing
            found.add((name, node.attr))
    assert found == ALLOWED
