"""Failures that our own scripts report: in the image while it is built, and around the engine."""

from builder.system.failures.cause import cause

OWN = (
    cause(
        "not-as-planned",
        r"verify: error: (?P<what>.+)",
        message="the image is not what was planned: {what}",
        fix="see which package brought that torch in its log; pin it, or leave out what requires another one",
    ),
    cause(
        "base-replaced",
        r"recipe: error: (?P<what>\S+ of the base image was replaced: .+)",
        message="{what}",
        fix="find the package or command that installs another one in its log, and leave it out",
    ),
    cause(
        "not-fetched",
        r"recipe: error: (?P<what>.+ not fetched before, and no server is asked)",
        message="{what}",
        fix="fetch it where there is a network: `recipe fetch`, with the same RECIPE_CACHE_DIR; or leave out --offline",
    ),
    cause(
        "own-script",
        r"recipe: error: (?P<what>.+)",
        message="{what}",
        fix="do as it says, then build again",
    ),
)
