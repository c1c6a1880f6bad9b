"""The MPI library that a rank has loaded, and the host's that it could have loaded in its place.

A host's MPI takes the place of the image's where its folder is bound, is first on LD_LIBRARY_PATH, and has a library of
the name (libmpi.so.12 of the MPICH ABI) by which the program looks for its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any, Dict, List

from . import hardware
from .checks import ResultView, look_up, show

_LIBRARY = re.compile(r"libmpi(ch|_cray|_abi|_gnu\w*)?\.so")
_NAME = re.compile(r"lib\w+\.so\.\d+")  # what programs are linked to; the file's own name may be longer


def describe(mpi: Any) -> Dict[str, str]:
    """Describe the loaded MPI: version, file, whether that is of the image or of the host, and what the host offers."""
    loaded = hardware.find_loaded()
    path = next((loaded[name] for name in sorted(loaded) if _LIBRARY.match(name)), "")
    version = mpi.Get_library_version().strip("\0 \n").partition("\n")[0]
    origin = find_origin(path)
    offered = find_offered(os.environ.get("LD_LIBRARY_PATH", ""), loaded=path) if origin == "image" else ""
    return {"version": " ".join(version.split()), "library": path, "from": origin, "offered": offered}


def end_mpi(mpi: Any, path: str) -> None:
    """End MPI while the other threads run: mpi4py's own call holds the lock of Python, and no limit would be kept."""
    if not path:
        mpi.Finalize()
        return
    ctypes.CDLL(path).MPI_Finalize()  # the library is loaded: it is the same one


def find_origin(path: str) -> str:
    """Return "image" or "host": a file that was bound is on another file system than the image's Python."""
    try:
        device = os.stat(path).st_dev
        own = {os.stat(place).st_dev for place in (os.path.realpath(sys.executable), "/")}
    except OSError:
        return "unknown"
    return "image" if device in own else "host"


def find_offered(folders: str, loaded: str) -> str:
    """Find the host's MPI library in the folders of LD_LIBRARY_PATH, by the name of the loaded one if it has it."""
    found = []
    for folder in filter(None, folders.split(":")):
        try:
            names = sorted(name for name in os.listdir(folder) if _LIBRARY.match(name) and _NAME.fullmatch(name))
        except OSError:
            continue
        found += [path for path in (os.path.join(folder, name) for name in names) if find_origin(path) == "host"]
    same = [path for path in found if os.path.basename(path) == cut_name(loaded)]
    return next(iter(same + found), "")


def cut_name(path: str) -> str:
    """Cut a library's file name down to the name that programs are linked to: libmpi.so.12 of libmpi.so.12.3.1."""
    found = _NAME.match(os.path.basename(path))
    return found.group() if found else os.path.basename(path)


def explain(facts: ResultView) -> List[str]:
    """Say why ranks that should load the host's MPI have loaded the image's, and what to do; [] if none has."""
    if facts.expected.get("mpi") != "host":
        return []
    bad = next((entry for entry in facts.list_ranks() if look_up(entry, "mpi", "from") == "image"), None)
    if bad is None:
        return []
    own, offered = show(look_up(bad, "mpi", "library")), show(look_up(bad, "mpi", "offered") or "")
    at = f"at: rank {show(bad.get('rank'))} on {show(bad.get('host'))}, {own}"
    if not offered:
        what = "no folder of LD_LIBRARY_PATH in the image has an MPI of the host"
        fix = "load the module that binds the site's MPI, or bind its folder (RECIPE_BINDS) and name it in "
        fix += "APPTAINERENV_LD_LIBRARY_PATH, both in run/site.env"
    elif cut_name(offered) != cut_name(own):
        what = f"the host's {offered} cannot take the place of {cut_name(own)}: it has another name, or another ABI"
        fix = f"make the image with an MPI whose library is {cut_name(offered)} (pip: mpich), and mpi4py for that one"
    else:
        what = f"the host's {offered} has the right name and was not loaded: a full path leads to the image's"
        fix = "unset MPI4PY_LIBMPI, and build mpi4py without an rpath"
    return [f"error: {what}", at, f"fix: {fix}"]
