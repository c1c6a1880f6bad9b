"""What a build job needs, from the site and the size of its image: memory, where that is its disk too, and time."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from builder.compile.build import size_gib
from builder.model.site import Job
from builder.model.target import Target

OWN_GIB = 8.0  # of the solver, of pip and of mksquashfs
STEP_GIB = 8  # memory is asked for in steps of so much
COPIES = 2.0  # of the unpacked image: itself, and what is being packed (LUMI: "at least twice", CSC's user guide)
FIXED_MINUTES, MINUTES_GIB = 15, 2.0  # to resolve and download; to install, compile and pack a GiB on a shared disk
USABLE = 0.93  # of a node's memory, where a job may have (LUMI: 480 of 512 GiB, 224 of 256)

_GIB = re.compile(r"(\d+)G")


def memory_gib(target: Target) -> int:
    """Memory that a build of this target needs, in GiB; twice the unpacked image where its disk is memory."""
    disk = COPIES * size_gib(target) if target.site.build.tmpdir_is == "memory" else 0.0
    return STEP_GIB * math.ceil((OWN_GIB + disk) / STEP_GIB)


def minutes(target: Target) -> int:
    """Time that a build of this target takes, in minutes, generously."""
    return 15 * math.ceil((FIXED_MINUTES + MINUTES_GIB * size_gib(target)) / 15)


def sized(target: Target, job: Job) -> Job:
    """The site's job for builds, with more memory and time where the image needs more than its file foresees.

    Memory is only changed where the site's jobs ask for it, and never beyond what a node has.
    """
    longer = replace(job, minutes=max(job.minutes, minutes(target)))
    said = _GIB.fullmatch(job.options.get("mem", ""))
    if said is None:
        return longer
    most = int((target.site.node.memory_gib or 10**6) * USABLE)
    wanted = max(int(said[1]), min(memory_gib(target), most))
    return replace(longer, options={**job.options, "mem": f"{wanted}G"})
