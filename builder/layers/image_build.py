"""The commands build and fetch: make an image, or fetch all that it is made of; altered entries are made again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..sif.errors import AlteredError, LayeringError, NotAsPlannedError, add_error_path, log_line, report
from ..sif.removal import remove
from ..sif.sif import read_sif
from ..sif.squashfs import SquashfsError, Superblock, read_superblock
from . import wheel_files
from .base_download import find_base_image
from .base_facts import FIX, read_base_facts
from .cache import CacheEntry, Store, open_shared_cache
from .container_steps import ContainerRunner
from .context import BuildContext, Fill, open_context
from .image_file import Draft, Layer, finish_image
from .locks import NO_LOCKS
from .metadata import (
    METADATA,
    check_own_folders,
    compare_torch,
    inspect_document,
    list_tree,
    write_metadata,
    write_own_files,
)
from .private_folders import CONDA, read_limit_bytes
from .spec import Spec
from .uv import make_uv_settings
from .wheel_layers import REQUIREMENTS, add_wheel_layers

if TYPE_CHECKING:  # loaded where there is a conda environment
    from .conda_client import CondaClient
    from .conda_layers import CondaEnvironment


OWN_FILES = 2  # version of what is added to the recipe's own files; another number makes their layer again


def build_image(context: BuildContext, target: Path) -> None:
    """Make the image; raises LayeringError and OSError."""
    spec, client = context.spec, find_conda_client(context)
    prepare_base(context)
    context.draft = draft = context.stack.enter_context(Draft(context.base, target))
    draft.copy_in_background(())
    add_package_layers(context, client)
    if (spec.folder / "root").is_dir():
        check_own_folders(context.base, spec=spec, facts=context.facts)
        fill = partial(write_own_files, spec=spec, facts=context.facts)
        inputs = [OWN_FILES, list_tree(spec.folder / "root"), context.facts.minor]
        context.add_layer("files", inputs, fill, keep_modes=True)
    if spec.read_text("run.sh"):
        parts = ("python", "run") if spec.place == "base" else ("run",)
        context.add_container_layer("run", parts=parts, files=("run.sh", "pip.txt", "protected.txt", "protect.py"))
    # The torch is read while the image is put together: the image gets its name when both have ended.
    context.run_in_background(partial(check_torch, context, tuple(context.layers)))
    context.run_in_background(partial(context.audit.judge, tuple(context.layers)))
    facts = context.facts
    inputs = [facts.labels, facts.runscript, *[spec.read_text(name) for name in METADATA]]
    context.add_layer("recipe", inputs, partial(write_metadata, spec=spec, facts=facts))
    titles = [(layer.entry.title, layer.entry.sha256) for layer in context.layers]
    document = inspect_document(titles, spec=spec, facts=facts)
    with add_error_path(target):
        finish_image(draft, context.layers, time=context.time, metadata=document)
    context.wait_for_tasks()


def find_conda_client(context: BuildContext) -> CondaClient | None:
    """Return the solver of conda packages, None for an image without a conda environment; raises LayeringError."""
    if context.spec.place != "conda":
        return None
    from .conda_client import find_client

    return find_client(
        work=context.work,
        cache=context.cache / CONDA,
        environment=make_uv_settings(context.environment, cache=context.cache),
        offline=context.offline,
    )


def prepare_base(context: BuildContext) -> None:
    """Download the base image where it is not here, and inspect it; raises LayeringError and OSError."""
    spec = context.spec
    context.base = find_base_image(
        spec.base,
        store=context.store,
        runtime=context.containers.runtime,
        work=context.work,
        packer=context.packer,
        offline=context.offline,
        hold=partial(context.keep_entry, "bases"),
    )
    context.facts = read_base_facts(context.base, store=context.store)
    if context.facts.machine != spec.machine:
        message = f"the base image '{spec.base}' is for {context.facts.machine}, and the site has {spec.machine}"
        fix = f"name an image for {spec.machine} with --base or container.base, or leave that out"
        raise LayeringError(message, fix=fix)
    context.packer = context.packer.match_packing(read_root_superblock(context.base))


def add_package_layers(context: BuildContext, client: CondaClient | None) -> None:
    """Append the layers of everything that comes from a server; raises LayeringError and OSError."""
    if context.spec.read_text("system.txt"):
        context.add_container_layer("system", parts=("system",), files=("system.txt",), network=True)
    add_wheel_layers(context, conda=_add_conda_layers(context, client) if client else None)
    if context.spec.read_text("requirements-own.txt"):
        _add_own_packages(context)


def _add_own_packages(context: BuildContext) -> None:
    """Append the layer of the recipe's own folders, which are built in a container."""
    spec = context.spec
    made = context.facts.minor or any(spec.read_text(name) for name in REQUIREMENTS)
    parts = ("own",) if made and spec.place != "base" else ("python", "own")
    files = ("requirements-own.txt", "constraints.txt", "protected.txt", "protect.py", "python-version")
    context.add_container_layer(
        "own", parts=parts, files=files, network=True, inputs=[list_tree(spec.folder / "local")]
    )


def _add_conda_layers(context: BuildContext, client: CondaClient) -> CondaEnvironment:
    """Append conda's packages, and a layer of what their own scripts change when they are installed."""
    from .conda_layers import CondaEnvironment

    conda = CondaEnvironment(context, client)
    context.packages += [f"{one.name}={one.version}={one.build}" for one in conda.packages]
    conda.install()
    python = f"{wheel_files.PREFIX}/bin/python{conda.minor}"
    context.facts = replace(context.facts, minor=conda.minor, python=python)
    if conda.scripts:
        log_line(f"run their own scripts: {', '.join(conda.scripts)}")
        context.add_container_layer("conda-scripts", parts=("links",), files=())
    return conda


def check_torch(context: BuildContext, layers: Sequence[Layer]) -> None:
    """Compare the torch in the files of the image with the plan; raises LayeringError."""
    facts = context.facts
    own = f"{facts.resolve_path(wheel_files.PREFIX)}/lib/python{facts.minor}/site-packages/torch"
    ends = ("/site-packages/torch", "/dist-packages/torch")
    folders = [path for path in facts.folders if path.endswith(ends)]
    places = [(context.base, read_sif(context.base).system.offset)]
    places += [(layer.entry.path, 0) for layer in layers if layer.entry.title not in ("system", "files")]
    compare_torch(
        places,
        folders=sorted({own, *folders}),
        folder=context.spec.folder,
        work=context.work,
        minor=facts.minor,
    )


def read_root_superblock(image: Path) -> Superblock:
    """Return the superblock of an image's root file system; raises LayeringError."""
    try:
        with image.open("rb") as file:
            return read_superblock(file, offset=read_sif(image).system.offset)
    except SquashfsError as error:
        raise LayeringError(f"the root file system of '{image}' cannot be read: {error}", fix=FIX) from None


def build(
    spec: Spec,
    target: Path,
    *,
    runtime: str,
    binds: Sequence[str],
    given: Path | None,
    cache: Path,
    environment: Mapping[str, str],
    umask: int,
) -> None:
    """Make the image of a plan at `target`, with the permissions of `umask`; raises LayeringError and OSError."""
    store = Store(cache, shared=open_shared_cache(environment))
    store.sweep()
    containers = ContainerRunner(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    for _ in range(3):
        with open_context(BuildContext, spec, store=store, containers=containers, environment=environment) as context:
            try:
                build_image(context, target)
            except AlteredError as error:
                altered = error.path
            else:
                target.chmod(0o755 & ~umask)
                if (wrong := context.audit.finish(target))[0]:
                    raise NotAsPlannedError(wrong[0], fix=wrong[1])
                report("whole", image=target.name)  # recipe reads the image meanwhile
                log_line(f"{target.name} is whole, its work folder is removed")
                _write_made_of(context, target, umask=umask)
                break
        log_line(f"the cached file '{altered}' was altered: it is made again")
        _forget(store, altered)
    else:
        raise LayeringError("the cache changes while it is read", fix="see `recipe cache check`")
    for entry in store.prune(read_limit_bytes(environment)):
        log_line(f"removed from the cache: {entry.title}")
    if store.locks.missing:
        log_line(f"note: the cache {cache}: {NO_LOCKS}")


def _forget(store: Store, path: str) -> None:
    """Remove an altered file from the cache."""
    for entry in store.list_entries():
        if str(entry.path) == path:
            store.forget(entry)


def _write_made_of(context: BuildContext, target: Path, *, umask: int) -> None:
    """Write `made-of.json` next to the image: its base, layers and packages."""
    rows: list[CacheEntry] = [layer.entry for layer in context.layers]
    document = {
        "base": {"reference": context.spec.base, "sha256": context.facts.sha256},
        "layers": [{"title": row.title, "sha256": row.sha256, "bytes": row.size, "key": row.key} for row in rows],
        "packages": context.packages,
    }
    path = target.with_name("made-of.json")
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o666 & ~umask)


class _NeedsLayersError(LayeringError):
    """A container step needs layers that were not made."""


@dataclass(kw_only=True)
class FetchContext(BuildContext):
    """A build that ends when everything that comes from a server is in the cache.

    Layers are made of what only a container can install, and of conda's packages: what pip has to install depends on
    them. Wheels are downloaded and compiled; they become layers when an image is built.
    """

    all_layers: bool = False  # make layers of wheels too
    skipped: int = 0  # layers that were not made

    def make_wheel_layer(self, title: str, inputs: Sequence[object], fill: Fill) -> Layer | None:
        """Return the layer if a container step needs it or it is in the cache; else download and compile only."""
        key = self.compute_layer_key(title, inputs)
        if self.all_layers or self.store.find("layers", key) is not None:
            return super().make_wheel_layer(title, inputs, fill)
        tree = Path(tempfile.mkdtemp(prefix="fetched-", dir=self.work))
        fill(tree)
        with self.audit.read_beside(key, tree, title=title):
            pass
        remove(tree)
        self.skipped += 1
        log_line(f"{title}: downloaded and compiled")
        return None

    def add_container_layer(
        self,
        title: str,
        *,
        parts: Sequence[str],
        files: Sequence[str],
        network: bool = False,
        inputs: Sequence[object] = (),
    ) -> None:
        """Append a layer that a container makes; raises _NeedsLayersError if layers below it were not made."""
        if self.skipped:
            raise _NeedsLayersError(f"'{title}' is installed in a container, on other layers: these are made too")
        super().add_container_layer(title, parts=parts, files=files, network=network, inputs=inputs)


def fetch(
    spec: Spec, *, runtime: str, binds: Sequence[str], given: Path | None, cache: Path, environment: Mapping[str, str]
) -> None:
    """Fetch everything that a plan's image is made of into the caches; raises LayeringError.

    Raises NotAsPlannedError at the end for packages that an image would not be published with.
    """
    store = Store(cache, shared=open_shared_cache(environment))
    store.sweep()
    containers = ContainerRunner(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    all_layers = False
    for _ in range(4):
        with open_context(FetchContext, spec, store=store, containers=containers, environment=environment) as context:
            context.all_layers = all_layers
            try:
                client = find_conda_client(context)
                prepare_base(context)
                add_package_layers(context, client)
                context.wait_for_tasks()
                wrong, fix = context.audit.judge_fetched(context.layers, context.packages)
            except _NeedsLayersError as reason:
                log_line(str(reason))
                all_layers = True
            except AlteredError as error:
                log_line(f"the cached file '{error.path}' was altered: it is made again")
                _forget(store, error.path)
            else:
                log_line("everything is here")
                if wrong:
                    raise NotAsPlannedError(wrong, fix=fix)
                return
    raise LayeringError("the cache changes while it is read", fix="see `recipe cache check`")
