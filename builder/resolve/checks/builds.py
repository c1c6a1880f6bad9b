"""Checks of what packages need: torch at build time, a C library, a maintainer, a module name of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.backend import TRAITS
from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import VendorPackage, load_image_table, load_package_table, load_torch_table
from builder.resolve.checks.known_builds import suggest_known_build
from builder.resolve.checks.packages import is_marked, locate, name_devices
from builder.resolve.checks.vendors import (
    VENDOR_NAMES,
    can_compile,
    find_rocm_of_cupy,
    format_page,
    has_own_index,
    is_cuda_loader,
    name_cuda_image,
    read_local,
    suggest_counterpart,
    suggest_without_build,
)
from builder.resolve.conda_names import is_cuda_library, matches
from builder.resolve.indexes import WheelPage, list_builds, list_pages
from builder.resolve.package_plan import CUDA_RUNTIME
from builder.resolve.replacements import find_replacement
from builder.resolve.requested import FAMILY, TRITON
from builder.resolve.tokens import find_vendor, list_tokens
from builder.resolve.torch import find_release

# The ROCm of the image: cupy-rocm-7-0, jax[rocm7-local], jax-rocm60-plugin (any ROCm 6).
NAMED_ROCM = re.compile(r"-rocm-?(\d)0?(?:-(\d+))?(?:-local|-plugin|-pjrt)?$")
JAX_ROCM_7 = Version("0.8")  # the extra `rocm` of older ones brings jax-rocm60-plugin, of newer ones jax-rocm7-plugin


def check_build_needs(target: Target) -> Iterator[Finding]:
    """Report packages that are compiled on installation and need an installed torch."""
    vendor = target.site.vendor
    for line, row in find_installed(target):
        if not row.needs or line.url.endswith(".whl") or read_local(line) or _has_wheel(line, target=target):
            continue
        message = f"'{line.text}' is built from source and needs {row.needs}"
        fix = _suggest_install(row, line, target=target)
        level: Level = "warning"
        bare = bool(row.compilers) and has_no_compiler(target, compiler=row.compilers.get(vendor, ""))
        if "torch" in row.needs and not can_compile(target.site, backend=target.backend):
            fix = suggest_without_build(row, site=target.site, backend=target.backend)
            reported = target.backend == "layers" and line.name in target.environment.compiled  # by the backend
            level = "error" if row.compilers and not reported else "warning"
        if bare and not target.traits.one_call:
            fix = f"choose a base image with {row.compilers.get(vendor, 'a compiler')}"
            fix += name_cuda_image(target.site) if row.compilers.get(vendor) == "nvcc" else ""
            fix += ", if the project offers no wheel for this torch" if "torch" in row.needs else ""
        if page := format_page(row, target=target):
            fix = f"name the page of its wheels, --find-links {page}, if it is there; or {fix}"
        if bare:
            message += f"; the base image '{target.base.reference}' has no compiler"
            level = level if row.downloads else "error"
        if row.compilers and vendor not in row.compilers:
            if any(is_marked(marker, line) for marker in load_package_table().markers):
                continue  # reported by its vendor
            where = "CPUs" if vendor == "cpu" else name_devices(vendor)
            message = f"'{line.text}' is built from source for GPUs, and has no build for {where}"
            sites = " or ".join(VENDOR_NAMES[name] for name in row.compilers if name != "cpu")
            fix = suggest_counterpart(line.name, site=target.site, environment=target.environment)
            if not fix.startswith("for "):
                fix = f"remove it here, or choose a site with {sites} GPUs"
            level = "error"
        yield Finding(code="build-needs", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def _suggest_install(row: VendorPackage, line: PipRequirement, *, target: Target) -> str:
    """Suggest how a package from source is installed, where a compiler of the base image is not ruled out."""
    if "torch" not in row.needs:
        return f"no action needed if the base image has {row.compilers.get(target.site.vendor, 'a compiler')}"
    if line.name not in target.environment.compiled or target.context.lock is not None:
        order = f"python3 -m pip install --no-build-isolation {line.name}{line.specifier}"
        return f"install it after the others, in container.run: {order}"
    fix = "no action needed if the base image has a compiler: it is installed last, against the others' torch"
    if not row.compilers:
        lacks = f", which '{target.base.reference}' does not have" if has_no_compiler(target) else " in the image"
        fix = "no action needed to install it: that is done last, against the others' torch; its operators are "
        fix += f"compiled when they are loaded, by a compiler{lacks}"
    if target.environment.place == "base":
        fix += f"; if the base image brings its own {line.name}, remove the line"
    return fix


def _has_wheel(line: PipRequirement, *, target: Target) -> bool:
    """Whether an address of the recipe has wheels of a package for the site's torch."""
    torch = target.environment.torch
    return torch is not None and any(page.serves(torch) for page in _list_pages_of(line, target=target))


def _list_pages_of(line: PipRequirement, *, target: Target) -> list[WheelPage]:
    """List the addresses of wheels that a package compiled against torch, or one that they name, is taken from."""
    compiled = {row.name for row in load_package_table().packages if row.compilers} | {"pyg-lib"}
    compiled |= {*load_torch_table().gpu_dependent.names}
    pages = [] if line.url or line.name in (*FAMILY, *TRITON) else list_pages(target.recipe.pip_options)
    return [page for page in pages if line.name in compiled or page.has(line)]


def check_wheel_pages(target: Target) -> Iterator[Finding]:
    """Report an address whose wheels are for another vendor, or were compiled for another torch."""
    site, torch = target.site, target.environment.torch
    at = Location(file=target.recipe.file, line=target.recipe.lines.get("dependencies"))
    for page in list_pages(target.recipe.pip_options):
        users = [line for line in target.recipe.pip if page in _list_pages_of(line, target=target)]
        names = " and ".join(line.name for line in users[:3])
        other = page.vendor != site.vendor and (users or page.vendor != "cpu")
        if not other and (torch is None or page.serves(torch) or not (users and page.torch)):
            continue
        what = f"the wheels of '{page.url}'"
        if other or torch is None:
            message = f"{what} are for {name_devices(page.vendor)}, '{site.name}' has {name_devices(site.vendor)}"
        else:
            message = f"{what} were compiled for torch {page.torch} and {page.build}, torch is {torch.local}"
        fix = f"remove it for '{site.name}'"
        if torch is not None and not torch.provided and site.vendor in ("nvidia", "cpu"):
            fix = f"write {page.adapt(torch)}, if the project has it, or remove it"
        message += f": {names} of them would not load" if users else ""
        level: Level = "error" if users else "warning"
        yield Finding(code="package-vendor" if other else "torch-pin", message=message, at=at, fix=fix, level=level)


def check_torch_of_wheel(target: Target) -> Iterator[Finding]:
    """Report a local version that names another torch than the environment's: torch-scatter==2.1.2+pt23cu121."""
    torch = target.environment.torch
    for line in target.recipe.pip if torch is not None and torch.version else ():
        named = re.match(r"pt(\d)(\d+)", read_local(line))
        if torch is None or named is None or torch.version.split(".")[:2] == [named[1], named[2]]:
            continue
        message = f"'{line.text}' was compiled for torch {named[1]}.{named[2]}, torch is {torch.local or torch.version}"
        fix = f"write a build for this torch, or torch=={named[1]}.{named[2]}.*"
        yield Finding(code="torch-pin", message=message, at=locate(target.recipe, line), fix=fix)


def check_cuda_libraries(target: Target) -> Iterator[Finding]:
    """Report a package that loads the libraries of CUDA where nothing installs them."""
    environment = target.environment
    bare = any(matches(_name_image(target), form) for form in load_image_table().without_compiler.names)
    if target.site.vendor != "nvidia" or not bare or environment.torch is not None:
        return
    if any(is_cuda_library(re.split(r"[ =<>!]", text)[0]) for text in environment.conda):
        return
    brings = re.compile(r"cuda\d\d|and-cuda|ctk|cudnn")  # extras
    brought = [
        line.name
        for line in target.recipe.pip
        if CUDA_RUNTIME.fullmatch(line.name) or any(map(brings.fullmatch, line.extras))
    ]
    for line in target.recipe.pip:
        other = find_replacement(line, site=target.site, base=target.base, python=environment.python)
        text = other.text if other else line.text
        name, own = _split_extras(text)
        forms = (name, *(f"{name}[{extra}]" for extra in own))
        loaders = load_package_table().cuda_loaders.items()
        extras = next((extras for form, extras in loaders if any(_is_form(one, form) for one in forms)), None)
        old = is_cuda_loader(line) and "cpu" not in target.recipe.container.gpu
        if old:
            extras = ""
        if extras is None or brought or line.url or {*extras.split(",")} <= {*own}:
            continue
        if text not in environment.pip_lines:
            continue
        message = f"'{text}' loads the libraries of CUDA, which '{target.base.reference}' does not have"
        fix = f"choose a base image with CUDA{name_cuda_image(target.site)}"
        if extras:
            fix = f"write {name}[{extras}], which brings them (recent releases have it), or {fix}"
        elif own:
            fix = f"write {name}[{own[0].partition('-')[0]}], which brings them, or {fix}"
        level: Level = "warning" if old else "error"
        yield Finding(code="package-cuda", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def _split_extras(text: str) -> tuple[str, list[str]]:
    """The name of a requirement and its extras."""
    match = re.match(r"([\w.-]+)(?:\[([^\]]*)\])?", text)
    name, extras = match.groups() if match else (text, "")
    return name, [extra.strip() for extra in (extras or "").split(",") if extra.strip()]


def _is_form(text: str, form: str) -> bool:
    return text == form or ("[" not in form and matches(text, form))


def has_no_compiler(target: Target, *, compiler: str = "") -> bool:
    """Whether the base image is known to have no compiler, and the recipe adds none."""
    added = (*target.recipe.container.system, *target.environment.conda)
    enough = r"g\+\+|gxx|build-essential|" if compiler in ("", "g++") else ""
    if any(re.search(rf"{enough}nvcc|hipcc|compiler|cuda-toolkit|rocm-dev", text) for text in added):
        return False
    return any(matches(_name_image(target), form) for form in load_image_table().without_compiler.names)


def _name_image(target: Target) -> str:
    return target.base.reference.removeprefix("docker://").removeprefix("docker.io/").removeprefix("library/")


def _is_unknown(target: Target) -> bool:
    """Whether a base image is one that the user chose, and neither a table nor a site's file has it."""
    image = target.base
    if image.family or any(image.reference == known.reference for known in target.site.base_images):
        return False
    return not any(matches(_name_image(target), form) for form in load_image_table().with_git.names)


def check_git(target: Target) -> Iterator[Finding]:
    """Report a requirement of a git repository where the base image has no git, or is not known to have it.

    Images of the site's file and of the tables are taken to have it; one that the user chose is not.
    """
    added = {re.split(r"[ =<>!]", text)[0] for text in (*target.recipe.container.system, *target.environment.conda)}
    bare = any(matches(_name_image(target), form) for form in load_image_table().without_compiler.names)
    line = next((line for line in target.recipe.pip if line.url.startswith("git+")), None)
    if line is None or not (bare or _is_unknown(target)) or "git" in added or target.traits.one_call:
        return
    has = "has no git" if bare else "is not known to have git"
    message = f"'{line.text}' is cloned during the build; the base image '{target.base.reference}' {has}"
    fix = "write system: [git] below container:, or choose a base image with git"
    if target.recipe.kind == "project":
        fix = 'write system = ["git"] below [tool.recipe], or choose a base image with git'
    elif target.recipe.kind == "pip":
        fix = "choose a base image with git, with --base, or give the address of a wheel"
    at = locate(target.recipe, line)
    yield Finding(code="build-needs", message=message, at=at, fix=fix, level="warning")


def check_index_login(target: Target) -> Iterator[Finding]:
    """Report code that can read the login of an index or a proxy during the build.

    layers/index_proxy.py hides the login of an index; every program of a build sees that of a proxy.
    """
    context, environment = target.context, target.environment
    installs = bool(environment.pip_lines or environment.torch_lines)
    logins = context.logins if installs and not target.traits.hides_logins else ()
    parts = [
        f"the login of {what} in {' and '.join(repr(name) for name in names)}"
        for what, names in (("an index", logins), ("a proxy", context.proxies))
        if names
    ]
    seen = _find_login_reader(target, installs=installs) if parts else None
    if seen is None:
        return
    who, at, level = seen
    other = next((name for name in TRAITS if TRAITS[name].hides_logins and name in target.site.build.backends), "")
    fix = "use a token that can only read this index"
    if context.proxies:
        fix = f"use a proxy without a login{f', and {fix}' if logins else ''}"
    elif other:
        fix = f"build with --backend {other}, where no build can read it"
    yield Finding(code="index-login", message=f"{who} {' and '.join(parts)}", at=at, fix=fix, level=level)


def _find_login_reader(target: Target, *, installs: bool) -> tuple[str, Location, Level] | None:
    """Find the code that can read a login: the start of a sentence, its location and a level."""
    built, at = _find_built(target), Location(file=target.recipe.file)
    if target.traits.one_call:
        return f"every program that runs while {target.backend} installs can read", at, "warning"
    if built:
        return (
            f"'{built[0].text}' is built from source, and its build can read",
            locate(target.recipe, built[0]),
            "warning",
        )
    if target.context.proxies and target.recipe.container.run:
        return "the commands of container.run can read", at, "warning"
    if installs and target.lock is not None and any(file.kind != "wheel" for file in target.lock.pip):
        return "the lock contains source packages, and their builds can read", at, "warning"
    if installs and target.lock is None:
        return "the build of a package without a wheel could read", at, "note"
    if target.context.proxies and (target.recipe.container.system or target.environment.place == "conda"):
        return "programs that packages run while they are installed could read", at, "note"
    return None


def _find_built(target: Target) -> list[PipRequirement]:
    """Find the requirements that are known to be built from source, if no lock lists them."""
    if target.lock is not None:
        return []
    compiled = target.environment.compiled
    return [
        line
        for line in target.recipe.pip
        if line.name in compiled or line.editable or (line.url and not line.url.partition("#")[0].endswith(".whl"))
    ]


def check_package_glibc(target: Target) -> Iterator[Finding]:
    """Report a wheel that needs a newer C library than the base image has."""
    has = target.base.glibc
    for line, row in find_installed(target):
        needed = row.glibc.get(target.site.vendor)
        if needed and has and Version(has) < Version(needed):
            message = (
                f"the wheels of '{line.text}' need glibc {needed}, the base image '{target.base.reference}' has {has}"
            )
            at = locate(target.recipe, line)
            yield Finding(code="glibc", message=message, at=at, fix="choose a newer base image")


def check_package_rocm(target: Target) -> Iterator[Finding]:
    """Report a package that needs another ROCm than the base image has, or the site's driver serves."""
    site, base = target.site, target.base
    for line in target.recipe.pip if site.vendor == "amd" else ():
        match = next(filter(None, map(NAMED_ROCM.search, (line.name, *(f"-{extra}" for extra in line.extras)))), None)
        wanted = ".".join(filter(None, match.groups())) if match else ""
        wanted = wanted or find_rocm_of_cupy(line) or _find_rocm_of_jax(line)
        wanted = wanted or _find_rocm_of_tensorflow(line, target=target)
        wanted = wanted if line.text in target.environment.pip_lines else ""
        if not wanted or _has_rocm(base.rocm, wanted=wanted, site=site):
            continue
        has = f"the base image '{base.reference}' has ROCm {base.rocm}" if base.rocm else f"'{site.name}' serves none"
        message = f"'{line.text}' needs ROCm {wanted}, {has}"
        image = next(
            (one for one in site.base_images if one.rocm and _has_rocm(one.rocm, wanted=wanted, site=site)), None
        )
        way = f"use the base image {image.reference}" if image else f"use a base image with ROCm {wanted}"
        if site.gpu is not None and not any(f"{one}.".startswith(f"{wanted}.") for one in site.gpu.rocm):
            way = f"remove it: '{site.name}' serves ROCm {', '.join(site.gpu.rocm)}"
        yield Finding(code="package-cuda", message=message, at=locate(target.recipe, line), fix=way)


def _find_rocm_of_jax(line: PipRequirement) -> str:
    """The ROCm that the plug-in of a pinned JAX needs, "" where that is not known."""
    pin = re.fullmatch(r"==([\d.]+)", line.specifier)
    if line.name != "jax" or "rocm" not in line.extras or pin is None:
        return ""
    return "7" if Version(pin[1]) >= JAX_ROCM_7 else "6"


def _find_rocm_of_tensorflow(line: PipRequirement, *, target: Target) -> str:
    """The ROCm that an address or the last part of the version of tensorflow-rocm names; PyPI ends at 2.14.0.600."""
    if line.name != "tensorflow-rocm":
        return ""
    pages = [] if line.url else [page.url for page in list_pages(target.recipe.pip_options)]
    if named := next(filter(None, map(re.compile(r"rocm-rel-(\d+\.\d+)").search, (line.url, *pages))), None):
        return named[1]
    if line.url or pages:
        return ""
    pin = re.fullmatch(r"==\d+\.\d+\.\d+\.(\d)(\d)\d", line.specifier)
    return f"{pin[1]}.{pin[2]}" if pin else "" if line.specifier.startswith("==") else "6.0"


def _has_rocm(brought: str | None, *, wanted: str, site: Site) -> bool:
    """Whether an image's ROCm is the wanted one (X or X.Y); of an unknown image what the driver serves decides."""
    served = (brought,) if brought else site.gpu.rocm if site.gpu else ()
    return not served or any(f"{one}.".startswith(f"{wanted}.") for one in served)


def _name_rocm(build: str) -> str:
    """X.Y of rocmX.Y, rocmX.Y.Z or rocmXYZ; of another build its name."""
    digits = re.fullmatch(r"rocm(\d)(\d)\d", build)
    return f"{digits[1]}.{digits[2]}" if digits else ".".join(build.removeprefix("rocm").split(".")[:2])


def check_other_builds(target: Target) -> Iterator[Finding]:
    """Report a package pinned to a build of PyTorch's index that is not the build of torch."""
    torch = target.environment.torch
    if torch is None or "://" not in torch.index:
        return
    for line in target.recipe.pip:
        build = next(iter(list_builds([line.text])), "")
        listed = line.name in load_torch_table().indexed.names or any(
            line.name == pin.package for pin in load_package_table().torch_pins
        )
        vendor = find_vendor(build)
        if vendor not in ("cpu", target.site.vendor):
            continue  # reported by its vendor
        if listed and build != torch.token and line.text in target.environment.pip_lines:
            message = f"'{line.text}' is the build for {build}, torch is {torch.local}: it may not load"
            row = find_release(torch.version)
            served = list_tokens(row, site=target.site, sure=False) if row else ()
            fix = suggest_known_build(line.name, site=target.site, torch=torch)
            fix = f"write torch=={torch.version}+{build}" if build in served else fix
            fix = fix or f"remove it for '{target.site.name}', or write it without the build"
            if has_own_index(line.name, vendor=target.site.vendor):
                rocm = _name_rocm(torch.token)
                if _name_rocm(build) == rocm:
                    continue
                other = suggest_counterpart(line.name, site=target.site, environment=target.environment)
                fix = f"{other}; NNN is that of ROCm {rocm}, as torch's"
            yield Finding(code="torch-pin", message=message, at=locate(target.recipe, line), fix=fix, level="warning")


def find_installed(target: Target) -> Iterator[tuple[PipRequirement, VendorPackage]]:
    """Find the requirements that are installed unchanged, with their rows."""
    rows = {row.name: row for row in load_package_table().packages}
    for line in target.recipe.pip:
        if line.name in rows and line.text in target.environment.pip_lines:
            yield line, rows[line.name]
