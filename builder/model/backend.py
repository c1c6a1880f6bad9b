"""What each backend can do and always does, as far as decisions outside of its own module depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from builder.model.site import BackendName


class BackendTraits(NamedTuple):  # a dataclass takes longer to load, and `recipe check` loads it
    """What a recipe can rely on with a backend, and what it must do without."""

    programs: tuple[str, ...]  # that it calls: each is a name, or several of which one is enough
    one_call: bool = False  # a conda environment of its own, by one call of pip; no distribution packages
    makes_folder: bool = False  # a folder with wrappers on an image of the backend's own choice
    compiles: bool = True  # packages that have no wheel
    hides_logins: bool = False  # of indexes, from the code that a build runs
    sets_times: bool = False  # in the image, by a program that the plan brings
    quotes_paths: bool = False  # what it reads holds a path as one quoted word
    environments: tuple[str, ...] = ()  # folders of the image that it puts an environment in, where it chooses them


# Where engines put an environment: cotainr's conda (pack.py of 2025.7.1; earlier it was in /opt/conda, with the same
# name of the environment); the squashfs file of tykky has nothing else.
TRAITS: Mapping[BackendName, BackendTraits] = {
    "apptainer": BackendTraits(hides_logins=True, sets_times=True, programs=("apptainer|singularity",)),
    "cotainr": BackendTraits(
        one_call=True,
        quotes_paths=True,
        programs=("cotainr", "singularity|apptainer"),
        environments=("opt/cotainr/conda", "opt/conda/envs/conda_container_env"),
    ),
    "docker": BackendTraits(sets_times=True, programs=("docker", "apptainer|singularity")),
    "layers": BackendTraits(
        compiles=False,
        hides_logins=True,
        quotes_paths=True,
        programs=("mksquashfs", "unsquashfs", "apptainer|singularity"),
    ),
    "tykky": BackendTraits(one_call=True, makes_folder=True, programs=("conda-containerize",), environments=("",)),
}
