"""Signs an image through the engine, with the user's own key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.execute.machine import find_installation
from builder.inspect.sif_objects import SIGNATURE
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError
from builder.model.plan import Plan
from builder.sif.sif import SifError, read_sif
from builder.system.process import attach, capture, find_program

STDERR = 2
FINGERPRINT = re.compile(r"\b[0-9A-Fa-f]{40}\b")


@dataclass(frozen=True, kw_only=True)
class Signer:
    """The engine that signs."""

    engine: Path
    environment: Mapping[str, str]

    def sign(self, image: Path) -> Finding | None:
        """Sign an image; the engine may ask for a passphrase at the terminal. Returns what went wrong."""
        try:
            code = attach([str(self.engine), "sign", str(image)], cwd=image.parent, env=self.environment, output=STDERR)
        except BuilderError as error:
            return error.findings[0]
        if code == 0 and is_signed(image):
            return None
        message = f"'{self.engine.name} sign' ended with exit code {code}: the image is not signed, and is at '{image}'"
        fix = f"see its lines above; sign it by hand with `{self.engine.name} sign`, or build without --sign"
        return Finding(code="not-signed", message=message, fix=fix, at=Location(file=str(image)))


def find_signer(plan: Plan, *, environment: Mapping[str, str]) -> Signer:
    """Find what signs, before anything is built; raises ConfigError for a folder, ToolError without engine or key."""
    if plan.image_kind != "sif":
        message = f"the backend '{plan.backend}' makes a folder, and only a SIF can be signed"
        fix = "leave out --sign, or choose another backend"
        raise ConfigError(Finding(code="sign-folder", message=message, fix=fix))
    engine = find_program("apptainer", env=environment) or find_program("singularity", env=environment)
    if engine is None:
        message = "there is neither 'apptainer' nor 'singularity' on PATH to sign with"
        fix = find_installation("apptainer", environment=environment)
        raise ToolError(Finding(code="no-program", message=message, fix=fix))
    listed = capture([str(engine), "key", "list", "--secret"], env=environment)
    if listed.exit_code or not FINGERPRINT.search(listed.text):
        message, fix = "there is no key to sign with in your keyring", f"make one with `{engine.name} key newpair`"
        raise ToolError(Finding(code="no-key", message=message, fix=fix))
    return Signer(engine=engine, environment=environment)


def is_signed(image: Path) -> bool:
    """Say whether a SIF has a signature; whether it is good is for the engine to say."""
    try:
        return any(item.kind == SIGNATURE for item in read_sif(image).objects)
    except (OSError, SifError):
        return False
