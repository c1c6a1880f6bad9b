"""Property tests: what a stranger may hand us, by the thousands, drawn by hypothesis; no engine, no network."""

from __future__ import annotations

from support.guards import no_other_machine, nothing_of_the_caller

__all__ = ["no_other_machine", "nothing_of_the_caller"]
