"""What a distribution is on a machine: whether it uses its GPU, and if not, which file says so and why.

A package may hold several libraries of which one is chosen when it runs (one for each CUDA, one for each vendor): it
uses the GPU where one of them can. What is only opened by name when it runs (a codec of ffmpeg, a plug-in of MPI) is
no reason to refuse a package.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .binary import Binary
from .device_code import Code, Vendor
from .distribution import Distribution, Inventory
from .elf import parse_version
from .judged_machine import Judgement as Judgement
from .judged_machine import Machine as Machine
from .variants import FILE, find_unknown, find_unserved, is_for_gpu
from .vendor_rules import RuntimeLibrary, can_run, find_newest_ptx, find_runtime


def can_load_module(built: str, python: str) -> bool:
    """Whether an extension module is loaded; source: PEP 3149, PEP 384, PEP 703 (no stable ABI without the GIL)."""
    return built == python or (built == "abi3" and not python.endswith("t"))


def can_install_tag(tag: str, python: str) -> bool:
    """Whether a wheel is installed; source: "Platform compatibility tags", packaging.python.org, read 2026-11-23."""
    parts = tag.split("-")
    if len(parts) != 3:
        return True
    return any(_is_compatible(one, abi, python) for one in parts[0].split(".") for abi in parts[1].split("."))


def _is_compatible(interpreter: str, abi: str, python: str) -> bool:
    free = python.endswith("t")
    have = parse_version(python.removesuffix("t"))
    kind, number = interpreter[:2], interpreter[2:]
    built = (int(number[0]), *([int(number[1:])] if number[1:].isdigit() else [])) if number.isdigit() else ()
    if kind == "py":
        return abi == "none" and have[: len(built)] >= built
    if kind != "cp" or not built:
        return False
    if abi == "none":
        return have >= built
    if abi == "abi3":
        return not free and have >= built
    return built == have and abi == f"cp{number}{'t' if free else ''}"


FINE: tuple[Judgement, ...] = ("uses this GPU", "CPU only")
STACKS: Mapping[Vendor, str] = {"nvidia": "CUDA", "amd": "ROCm", "intel": "oneAPI 20"}
NAMES: Mapping[str, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "cpu": "no GPU"}
# Whose build without GPU code is not what a GPU site is for, and the names whose GPU code makes good for it.
FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "torch": ("intel-extension-for-pytorch",),
    "jaxlib": ("jax-",),
    "tensorflow": ("intel-extension-for-tensorflow",),
    "onnxruntime": ("onnxruntime-",),
    "paddlepaddle": (),
    "intel-extension-for-pytorch": (),
    "pytorch": ("libtorch",),  # conda
    "libtorch": (),
    "tensorflow-base": (),
    "cupy": (),  # of conda-forge, and built from source
}
SHOWN = 8  # targets that a reason lists


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one distribution is on a machine; `wrong` where it was not installed for that."""

    kind: str
    name: str
    version: str
    says: Judgement
    file: str
    reason: str
    wrong: bool = False
    variant: str = ""  # the label of a variant wheel


def judge(inventory: Inventory, machine: Machine) -> tuple[Verdict, ...]:
    """A verdict for every distribution that has ELF files or is a variant."""
    found = [_judge(one, inventory, machine) for one in inventory.distributions if one.binaries or one.variant]
    using = {verdict.name.lower() for verdict in found if verdict.says == "uses this GPU"}
    return tuple(_judge_fault(verdict, machine, using) for verdict in found)


def _judge_fault(verdict: Verdict, machine: Machine, using: set[str]) -> Verdict:
    """Whether a verdict is a fault. A file that no package installed is the base image's matter."""
    if verdict.kind not in ("pip", "conda"):
        return verdict
    wrong, reason = verdict.says not in FINE, verdict.reason
    plugins = FRAMEWORKS.get(verdict.name.lower())
    if plugins is not None and verdict.says == "CPU only" and machine.vendor != "cpu":
        wrong = not any(name.startswith(plugin) for plugin in plugins for name in using)
        reason = f"it is the build without a GPU: {reason}" if wrong else reason
    return Verdict(
        kind=verdict.kind, name=verdict.name, version=verdict.version, says=verdict.says, file=verdict.file,
        reason=reason, wrong=wrong, variant=verdict.variant,
    )  # fmt: skip


def _judge(one: Distribution, inventory: Inventory, machine: Machine) -> Verdict:
    said = _judge_loading(one, inventory, machine) or _judge_variant(one, machine)
    says, file, reason = said or _judge_gpu(one, inventory, machine)
    path = file.path if file is not None else FILE if one.variant else ""
    return Verdict(
        kind=one.kind, name=one.name, version=one.version, says=says, file=path, reason=reason, variant=one.variant
    )


Said = tuple[Judgement, "Binary | None", str]


def _judge_loading(one: Distribution, inventory: Inventory, machine: Machine) -> Said | None:
    """Why the loader or Python would refuse it, whatever GPU there is."""
    host = [binary for binary in one.binaries if binary.machine]
    if host and not any(binary.machine == machine.arch for binary in host):
        return "other processor", host[0], f"it is for {host[0].machine}, the machine is {machine.arch}"
    python = one.python or machine.python
    if python:
        if one.tags and not any(can_install_tag(tag, python) for tag in one.tags):
            return "other Python", None, f"the wheel is for {one.tags[0].rpartition('-')[0]}, this is Python {python}"
        modules = [binary for binary in host if binary.python]
        if modules and not any(can_load_module(binary.python, python) for binary in modules):
            return "other Python", modules[0], f"it is for Python {modules[0].python}, this is Python {python}"
    have = inventory.glibc or machine.glibc
    newest = max(host, key=lambda binary: parse_version(binary.glibc), default=None)
    if have and newest is not None and parse_version(newest.glibc) > parse_version(have):
        where = "the image" if inventory.glibc else "the base image"
        return "newer glibc", newest, f"it needs glibc {newest.glibc}, {where} has {have}"
    return None


def _judge_variant(one: Distribution, machine: Machine) -> Said | None:
    """What the properties of a variant say; where the machine has them, its files say more if it has some."""
    if not one.variant:
        return None
    unserved = find_unserved(one.features, machine)
    if unserved is not None:
        return unserved.says, None, unserved.reason
    unknown = find_unknown(one.features, machine)
    if unknown and not one.binaries:
        return "CPU only", None, f"whether the machine has {', '.join(unknown)} of the variant is not known"
    if is_for_gpu(one.features) and not one.binaries:
        return "uses this GPU", None, f"the variant '{one.variant}' was built for it"
    return None


def find_vendors(binary: Binary) -> set[Vendor]:
    """Whose GPUs a file is for: by what it links, by its device code, or because it is a vendor's library itself."""
    found = {runtime.vendor for runtime in binary.linked} | {code.vendor for code in binary.code}
    own = find_runtime(binary.soname) if binary.soname else None
    return found | ({own.vendor} if own is not None else set())


def find_majors(binary: Binary, vendor: Vendor) -> frozenset[int]:
    """The majors of the vendor's stack that a file needs.

    Where CUDA's runtime is linked statically the version of the PTX says it: PTX 7 came with CUDA 11, 8 with 12 and 9
    with 13 (PTX ISA, "Release Notes").
    """
    own = find_runtime(binary.soname) if binary.soname else None
    known: Sequence[RuntimeLibrary] = (*binary.linked, *([own] if own is not None else []))
    found = {runtime.major for runtime in known if runtime.vendor == vendor and runtime.major is not None}
    if not found and vendor == "nvidia":
        found = {parse_version(code.isa)[0] + 4 for code in binary.code if code.isa and parse_version(code.isa)[0] >= 7}
        found = {max(found)} if found else set()
    return frozenset(found)


def _judge_gpu(one: Distribution, inventory: Inventory, machine: Machine) -> Said:
    gpu = [binary for binary in one.binaries if find_vendors(binary)]
    if machine.vendor == "cpu":
        names = ", ".join(sorted({NAMES[vendor] for binary in gpu for vendor in find_vendors(binary)}))
        return "CPU only", None, f"its code for {names} is not used: there is no GPU" if names else NO_CODE
    own = [binary for binary in gpu if machine.vendor in find_vendors(binary)]
    if own:
        return _judge_own_vendor(own, inventory, machine, machine.vendor)
    if gpu:
        return _judge_other_vendor(gpu, len(one.binaries), machine)
    for binary in one.binaries:
        for name in binary.opened:
            runtime = find_runtime(name)
            if runtime is not None and runtime.vendor == machine.vendor and one.name.lower() not in FRAMEWORKS:
                return "uses this GPU", binary, f"it opens {name} when it runs"
    return "CPU only", None, NO_CODE


NO_CODE = "no device code, and no GPU runtime is linked"


def _judge_other_vendor(gpu: Sequence[Binary], files: int, machine: Machine) -> Said:
    main = _find_main(gpu)
    names = " and ".join(sorted({NAMES[vendor] for binary in gpu for vendor in find_vendors(binary)}))
    solid = any(binary.code or find_runtime(binary.soname) for binary in gpu)
    what = _format_code(main.code) or ", ".join(runtime.name for runtime in main.linked[:3]) or main.soname
    if not solid and len(gpu) < files:
        return "CPU only", main, f"a plug-in of it is for {names} ({what}), the rest needs no GPU"
    return "other vendor", main, f"it is for {names} ({what}), this GPU is {NAMES[machine.vendor]}'s"


def _judge_own_vendor(own: Sequence[Binary], inventory: Inventory, machine: Machine, vendor: Vendor) -> Said:
    fitting, said = _select_served(own, machine, vendor)
    if said is not None:
        return said
    code = {one: binary for binary in fitting for one in binary.code if one.vendor == vendor}
    ptx = find_newest_ptx(machine.cuda)
    usable = sorted(one for one in code if can_run(one, machine.targets, ptx=ptx))
    if code and machine.targets and not usable:
        return "no code for this GPU", _find_main(fitting), _explain_no_code(code, machine, ptx)
    if inventory.whole and (said := _find_missing(fitting, inventory, vendor)) is not None:
        return said
    if usable:
        best = usable[0]
        return "uses this GPU", code[best], f"{best} in it"
    main = _find_main(fitting)
    linked = [runtime.name for runtime in main.linked if runtime.vendor == vendor] or [main.soname]
    return "uses this GPU", main, f"it needs {linked[0]}"


def _select_served(own: Sequence[Binary], machine: Machine, vendor: Vendor) -> tuple[list[Binary], Said | None]:
    """The files whose runtime the driver serves; or that none is, where those that name one name another."""
    if not machine.majors:
        return list(own), None
    served = frozenset(machine.majors)
    naming = [binary for binary in own if find_majors(binary, vendor)]
    fitting = [binary for binary in own if find_majors(binary, vendor) <= served]
    if not naming or any(binary in fitting for binary in naming):
        return fitting, None
    main = _find_main(naming)
    needs = find_majors(main, vendor)
    names = [runtime.name for runtime in main.linked if runtime.major in needs and runtime.vendor == vendor]
    stack = STACKS[vendor]
    wanted = ", ".join(f"{stack} {major}" for major in sorted(needs))
    what = f"it needs {names[0]} ({wanted})" if names else f"it was built with {wanted}"
    serves = ", ".join(str(major) for major in sorted(served))
    return [], ("wrong runtime major", main, f"{what}, the driver serves {stack} {serves}")


def _explain_no_code(code: Iterable[Code], machine: Machine, ptx: str) -> str:
    gpu = ", ".join(machine.targets)
    late = [one for one in code if one.kind == "ptx" and can_run(one, machine.targets)]
    text = f"it has code for {_format_code(code)}, this GPU is {gpu}"
    if late:
        text += f"; its PTX {late[0].isa} is newer than the driver compiles (PTX {ptx})"
    return text


def _find_missing(fitting: Sequence[Binary], inventory: Inventory, vendor: Vendor) -> Said | None:
    """What is linked and is nowhere in the image, and in no driver; one of several builds is enough."""
    groups: dict[frozenset[int], list[Binary]] = defaultdict(list)
    for binary in fitting:
        groups[find_majors(binary, vendor)].append(binary)
    if len(groups) > 1:
        groups.pop(frozenset(), None)  # these say nothing of a build
    said: Said | None = None
    for binaries in groups.values():
        main = _find_main(binaries)
        lacking = [
            runtime.name
            for runtime in main.linked
            if runtime.vendor == vendor and not runtime.driver and runtime.name not in inventory.names
        ]
        if not lacking:
            return None
        said = "library missing in the image", main, f"it needs {', '.join(lacking[:4])}, which is not in the image"
    return said


def _find_main(binaries: Sequence[Binary]) -> Binary:
    """The file that matters most: the largest with device code, else the largest."""
    return max(binaries, key=lambda binary: (bool(binary.code), binary.size))


def _format_code(code: Iterable[Code]) -> str:
    names = [str(one) for one in sorted(code)]
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
