"""Checks of an mpi4py that is compiled: its build needs an MPI with its headers and a compiler, and one MPI alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from builder.model.finding import Finding, Level, Location
from builder.model.target import Target
from builder.resolve.checks.builds import has_no_compiler
from builder.resolve.checks.vendors import can_compile
from builder.resolve.source_releases import find_first_wheel, find_source_release

MPI_HEADERS = re.compile(r"lib(mpich|openmpi)-dev|(mpich|openmpi)-devel")  # of distributions; each brings mpicc
CONDA_MPI = re.compile(r"(mpich|openmpi|impi-devel)([ =<>].*)?")
SECOND_MPI = re.compile(r"(lib)?(mpich|openmpi|impi|intel-oneapi-mpi)([-_0-9].*)?|impi-(rt|devel)")
# Debian names the library of its MPICH libmpich.so.12 (Debian 12, 2026-11-23); the hosts' is libmpi.so.12.
NOT_SWAPPED = re.compile(r"(lib)?openmpi([-_0-9].*)?|libmpich-dev|libmpich12")
COMPILER = re.compile(r"gcc|g\+\+|build-essential|clang|(c-|cxx-)?compilers?|gcc_linux-64")


def check_mpi_build(target: Target, *, at: Location) -> Iterator[Finding]:
    """Report an mpi4py without a wheel where the image is not known to have what its build needs."""
    base, recipe, since = target.base, target.recipe, find_first_wheel("mpi4py")
    said = f"'{find_source_release(recipe, 'mpi4py')}' has no wheel (the first one is of {since}): its build needs "
    if target.backend == "layers" and not can_compile(target.site, backend="layers"):
        message = f"{said}fakeroot with --backend layers, which '{target.site.name}' does not have"
        fix = f"write mpi4py>={since}{'' if base.mpi not in (None, 'none') else ' and add mpich to the pip packages'}"
        yield Finding(code="mpi-missing", message=message, at=at, fix=fix)
        return
    if base.mpi not in (None, "none"):
        return
    names = [re.split(r"[ =<>!~]", text)[0] for text in (*recipe.container.system, *target.environment.conda)]
    has_mpi = any(map(MPI_HEADERS.fullmatch, recipe.container.system))
    has_mpi = has_mpi or any(map(CONDA_MPI.fullmatch, target.environment.conda))
    if has_mpi and any(map(COMPILER.fullmatch, names)):
        return
    lacks = "a C compiler" if has_mpi else "an MPI with its headers and a C compiler"
    certain = base.mpi == "none" if not has_mpi else has_no_compiler(target)
    message = f"{said}{lacks}, which '{base.reference}' {'does not have' if certain else 'is not known to have'}"
    fix = f"write mpi4py>={since}"
    fix += "" if target.site.brings_mpi or has_mpi else " and add mpich to the pip packages"
    level: Level = "error" if certain else "warning"
    yield Finding(code="mpi-missing", message=message, at=at, fix=fix, level=level)


def check_second_mpi(target: Target) -> Iterator[Finding]:
    """Report an MPI that is installed in addition to the base image's, and conda's packages that are linked to one."""
    recipe, own = target.recipe, f"the base image's {target.base.mpi}"
    yield from _report_served(target, own=own)
    conda = set(target.environment.conda)
    for spec in recipe.conda:
        at = Location(file=recipe.file, line=spec.line)
        if spec.text not in conda or spec.build.startswith("external"):  # conda-forge's name of the host's own MPI
            continue
        linked = re.match(r"\*?mpi_(?P<name>[a-z]+)", spec.build)
        if linked and linked["name"] != "serial":
            message = f"'{spec.text}' loads conda's {linked['name']}, and mpi4py loads {own}: one program, two MPIs"
            version = spec.version if spec.version.startswith("=") else "=*"
            fix = f"write {spec.name}{version}=nompi*, or build {spec.name} from source in container.run"
            yield Finding(code="mpi-own", message=message, at=at, fix=fix, level="warning")
        elif SECOND_MPI.fullmatch(spec.name):
            yield _report_second(spec.text, own=own, site=target.site.name, at=at)
    for line in recipe.pip:
        if SECOND_MPI.fullmatch(line.name) and line.text in target.environment.pip_lines:
            at = Location(file=line.file or recipe.file, line=line.line)
            yield _report_second(line.text, own=own, site=target.site.name, at=at)


def check_swapped_mpi(target: Target) -> Iterator[Finding]:
    """Report an MPI in the image whose place the host's cannot take, because programs ask for it by another name."""
    recipe, site = target.recipe, target.site
    if site.launch.mpi != "host" or target.base.mpi not in (None, "none"):
        return
    conda = set(target.environment.conda)
    named = [(spec.name, spec.text, recipe.file, spec.line) for spec in recipe.conda if spec.text in conda]
    named += [(line.name, line.text, line.file or recipe.file, line.line) for line in recipe.pip]
    system = recipe.lines.get("container.system")
    named += [(name.partition("=")[0], name, recipe.file, system) for name in recipe.container.system]
    for name, text, file, line in named:
        at = Location(file=file, line=line)
        if name == "mpich":
            message = f"'{text}' is installed, and on '{site.name}' the host's MPI takes its place when a job runs"
            fix = "no action needed: both have the library that mpi4py loads, libmpi.so.12"
            yield Finding(code="mpi-own", message=message, at=at, fix=fix, level="note")
        elif NOT_SWAPPED.fullmatch(name):
            library = "libmpich.so.12" if "mpich" in name else "libmpi.so.40"
            message = f"programs made with '{text}' load its {library}: the host's MPI of '{site.name}', libmpi.so.12, "
            message += "cannot take its place"
            fix = "take mpich of pip or conda in its place"
            yield Finding(code="mpi-own", message=message, at=at, fix=fix, level="warning")


def _report_served(target: Target, *, own: str) -> Iterator[Finding]:
    """Report the mpich of a file for several sites that is not installed on this one."""
    recipe, dropped = target.recipe, {one.asked for one in target.packages if one.became == "-"}
    asked = [(spec.name, spec.text, recipe.file, spec.line) for spec in recipe.conda]
    asked += [(line.name, line.text, line.file or recipe.file, line.line) for line in recipe.pip]
    for name, text, file, line in asked:
        if name == "mpich" and text in dropped:
            message = f"'{text}' is not installed on '{target.site.name}': {own} takes its place"
            fix = "no action needed: mpi4py is made for that one; sites without an MPI get the one of the file"
            yield Finding(code="mpi-own", message=message, at=Location(file=file, line=line), fix=fix, level="note")


def _report_second(text: str, *, own: str, site: str, at: Location) -> Finding:
    message = f"'{text}' is a second MPI, and mpi4py is made for {own}: a program may load the other one"
    fix = f"remove it: {own} is there"
    if not own.endswith("'s none") and "mpich" in own:
        fix = f"write mpich in its place: sites without an MPI install it, and on '{site}' {own} takes its place"
    return Finding(code="mpi-own", message=message, at=at, fix=fix, level="warning")
