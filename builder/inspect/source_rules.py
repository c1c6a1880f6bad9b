"""What is left out of a file or folder of the recipe that goes into an image: as it is copied, and as it is compared.

That is what recipe itself writes, what IgnoreRules excludes, and from a package what other builds have written.
"""

from __future__ import annotations

from pathlib import Path

from builder.inspect.attestations import list_image_files
from builder.model.plan import Copy
from builder.parse.copied_files import IgnoreRules
from builder.system.layout import OWN_PACKAGES, PLAN_FILE, STAGING, WRITTEN_FILE, name_failed_copy


class SourceRules:
    """The rules for one copy of a plan; `folder` is the plan folder, which may not exist yet."""

    def __init__(self, copy: Copy, *, recipe_folder: Path, folder: Path) -> None:
        self.package = copy.path.startswith(OWN_PACKAGES)
        self.ignored = IgnoreRules(recipe_folder, package=self.package)
        self.products = list_products(folder.resolve())
        self.staging = f".{folder.name}{STAGING}"
        self.others: dict[Path, set[Path]] = {}  # by the folder that they are in

    def covers(self, path: Path, *, top: Path) -> bool:
        """Whether a file or folder below `top`, which is no link, is neither copied nor compared."""
        if path in self.products or path.name.startswith(self.staging):
            return True
        return (self.package and path in self._list_others(path.parent)) or bool(
            self.ignored.find_reason(path, top=top)
        )

    def _list_others(self, folder: Path) -> set[Path]:
        """List the products of all builds whose plan folders are in a folder."""
        if folder not in self.others:
            try:
                plans = [path for path in folder.iterdir() if _is_recorded(path)]
            except OSError:  # reported when it is copied
                plans = []
            self.others[folder] = {product for plan in plans for product in list_products(plan)}
        return self.others[folder]


def list_products(folder: Path) -> set[Path]:
    """List a plan folder, its image, the copy of one that failed its test, and their attestations; they may be missing.

    The image is the file that the plan folder links to, too, whatever its name.
    """
    found = {folder, *list_image_files(folder)}
    try:
        links = [path.resolve() for path in folder.iterdir() if path.is_symlink()]
    except (OSError, RuntimeError):  # it is new, or a link leads to itself
        links = []
    found |= {path for path in links if path.parent == folder.parent and path.is_file()}
    return found | {name_failed_copy(path) for path in found - {folder}}


def _is_recorded(path: Path) -> bool:
    """Whether a path is a plan folder in which recipe noted what it wrote."""
    return (path / PLAN_FILE).is_file() and (path / WRITTEN_FILE).is_file()
