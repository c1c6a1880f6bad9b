"""Known failures of the engines: what they print, what it means, what to do. The first cause that matches wins.

Wordings were seen with pip 22.3 and 26.3, uv 0.13.8, Apptainer 1.4.5, mksquashfs 4.5.1, curl 7.88, bash 5.2 and cotainr
2025.7.1, or read in the source of Apptainer (2026-08) and of cotainr; those of conda, mamba and SingularityCE are from
their issue threads.
"""

from builder.system.failures.cause import Cause
from builder.system.failures.engines import ENGINES
from builder.system.failures.installers import PACKAGES
from builder.system.failures.resources import MACHINE, OWN

SURE, SAID_BY_US = OWN[:-1], OWN[-1:]

# General messages of our own scripts come last: an engine may have printed the reason.
CAUSES: tuple[Cause, ...] = SURE + MACHINE + ENGINES + PACKAGES + SAID_BY_US
