"""Whether this machine is a login node of a site."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from builder.execute.asking import which
from builder.model.site import Site


def on_login_node(site: Site, *, environment: Mapping[str, str]) -> bool:
    """A machine of the site outside every job; one that is not the site's is no login node of it.

    Where a site's file does not know the names of its nodes, its base images on its own disks and sbatch tell.
    """
    if environment.get("SLURM_JOB_ID"):
        return False
    if site.hostnames:
        name = os.uname().nodename
        return any(fnmatch.fnmatchcase(name.partition(".")[0], form) for form in site.hostnames)
    own = [Path(image.reference) for image in site.base_images if image.reference.startswith("/")]
    return any(path.exists() for path in own) and which("sbatch", env=environment) is not None
