"""Variant wheels: the properties that one was built with, and whether a machine has them.

PEP 825 (draft of 2026-02-17, as of python/peps 02bcf97, read 2026-11-23): a label at the end of the file name, and the
properties of each label in `variant.json` of the wheel and in `NAME-VERSION-variants.json` of the index. Of each
feature one value has to be served; the label `null` has none. What the values mean is what the providers say: those in
uv 0.13.9 (crates/uv-distribution/src/variant: nvidia, x86_64, aarch64), wheelnext/amd-variant-provider 4d985a9 and
wheelnext/intel-variant-provider 9516bd2. They ask the machine that they run on; here the answer is the site's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..sif.bounded import parse_json
from .content import AuditError
from .elf import parse_version
from .judged_machine import Judgement, Machine
from .vendor_rules import INTEL, can_compile_ptx, can_run_cubin, can_run_hip
from .wheel_names import LABEL

FILE = "variant.json"  # in *.dist-info
SIZE = 1 << 20  # bytes of it
LABELS, VALUES = 1000, 20_000
WORD = re.compile(r"[a-z0-9_]{1,200}")
VALUE = re.compile(r"[a-z0-9_.]{1,200}")
NULL = "null"
SCHEMA = re.compile(r"[/-]v(\d+)\.[\d.]+\.json$")
MAJORS = ("0", "1")  # versions of the format: the drafts, and the first that is not one
LEVELS = ("v1", "v2", "v3", "v4")
VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
SHOWN = 6  # values that a reason lists
Features = Mapping[str, tuple[str, ...]]  # values by "namespace :: feature"


@dataclass(frozen=True, kw_only=True)
class MissingFeature:
    """A feature of which a machine serves no value."""

    says: Judgement
    reason: str


def parse_variants(content: bytes) -> dict[str, Features]:
    """The properties of each label; raises AuditError for any other text."""
    found: Any = None
    try:
        found = parse_json(content, limit=SIZE)
    except ValueError as error:
        raise AuditError(f"the properties of the variant cannot be read: {error}") from None
    schema = SCHEMA.search(str(found.get("$schema", ""))[-200:]) if isinstance(found, dict) else None
    if schema is not None and schema[1] not in MAJORS:
        raise AuditError(f"the variants are of version {schema[1]} of the format, which is not known here")
    variants = found.get("variants") if isinstance(found, dict) else None
    if not isinstance(variants, dict) or len(variants) > LABELS:
        raise AuditError("there is no table of variants in it")
    return {_check(LABEL, label): _parse_features(table) for label, table in variants.items()}


def _parse_features(table: Any) -> Features:
    features: dict[str, tuple[str, ...]] = {}
    for namespace, named in table.items() if isinstance(table, dict) else [("", None)]:
        for feature, values in named.items() if isinstance(named, dict) else [("", None)]:
            key = f"{_check(WORD, namespace)} :: {_check(WORD, feature)}"
            features[key] = tuple(_check(VALUE, value) for value in values) if isinstance(values, list) else ()
            if not 0 < len(features[key]) <= VALUES:
                raise AuditError(f"'{key}' of the variant has no list of values")
    return features


def _check(form: re.Pattern[str], word: object) -> str:
    if not isinstance(word, str) or not form.fullmatch(word):
        raise AuditError(f"{str(word)[:40]!r} is no word of a variant's properties")
    return word


def find_unserved(features: Features, machine: Machine) -> MissingFeature | None:
    """The first feature of which a machine is known to serve no value."""
    for key, values in features.items():
        served = [_is_served(key, value, machine) for value in values]
        if all(one is False for one in served):
            return MissingFeature(says=_name_judgement(key, machine), reason=_explain(key, values, machine))
    return None


def find_unknown(features: Features, machine: Machine) -> tuple[str, ...]:
    """The features of which it is not known whether the machine serves a value."""
    rows = [(key, [_is_served(key, value, machine) for value in values]) for key, values in features.items()]
    return tuple(key for key, served in rows if True not in served and None in served)


def select_serving(variants: Mapping[str, Features], machine: Machine) -> tuple[str, ...]:
    """The labels that a machine is known to serve, those with more properties first; `null` is the last."""
    serving = [
        label
        for label, features in variants.items()
        if find_unserved(features, machine) is None and not find_unknown(features, machine)
    ]
    return tuple(sorted(serving, key=lambda label: (label == NULL, -len(variants[label]), label)))


def list_properties(machine: Machine) -> tuple[str, ...]:
    """What a variant for a machine may ask for, as far as the site says it."""
    found: list[str] = []
    if machine.vendor == "nvidia" and machine.cuda:
        found += [f"nvidia :: cuda_version_lower_bound up to {machine.cuda}"]
        found += [f"nvidia :: cuda_version_upper_bound above {machine.cuda}"]
    if machine.vendor == "nvidia":
        found += [f"nvidia :: sm_arch :: {target[3:]}_real" for target in machine.targets]
    if machine.vendor == "amd":
        found += [f"amd :: gfx_arch :: {target.partition(':')[0]}" for target in machine.targets]
        found += [f"amd :: rocm_version :: {major}.*" for major in machine.majors]
    if machine.vendor == "intel":
        found += [f"intel :: device_ip :: {INTEL[target]}.*" for target in machine.targets if target in INTEL]
    if machine.arch == "x86_64":
        found += [f"x86_64 :: level up to {machine.level or 'v2'}"]
    return tuple(found)


def is_for_gpu(features: Features) -> bool:
    """Whether a variant was built for the GPUs of a vendor."""
    return any(key.partition(" ")[0] in VENDORS for key in features)


def _is_served(key: str, value: str, machine: Machine) -> bool | None:
    """Whether a machine serves a value of a feature; None where it is not known here."""
    namespace = key.partition(" ")[0]
    if namespace in VENDORS and namespace != machine.vendor:
        return False
    if namespace in ("x86_64", "aarch64") and namespace != machine.arch:
        return False
    rule = RULES.get(key)
    if rule is None or (key in NUMBERED and not NUMBER.fullmatch(value)):
        return None
    return rule(value, machine)


def _serves_lower(value: str, machine: Machine) -> bool | None:
    """Whether the driver's CUDA is this one or newer."""
    if machine.cuda:
        return parse_version(machine.cuda) >= _pad(value)
    if machine.majors and _pad(value)[0] > max(machine.majors):
        return False
    return True if machine.majors and _pad(value) <= (max(machine.majors), 0) else None


def _serves_upper(value: str, machine: Machine) -> bool | None:
    """Whether the driver's CUDA is older than this one."""
    if machine.cuda:
        return parse_version(machine.cuda) < _pad(value)
    if machine.majors and _pad(value)[0] <= max(machine.majors):
        return None if _pad(value)[1] else False
    return True if machine.majors else None


def _pad(value: str) -> tuple[int, ...]:
    """A version of CUDA; 12 is 12.0."""
    found = parse_version(value)
    return (*found, 0) if len(found) == 1 else found


def _serves_sm(value: str, machine: Machine) -> bool | None:
    """Whether a GPU runs 90_real or 90a_real, or the driver compiles 90_virtual for it."""
    number, _, kind = value.partition("_")
    if kind not in ("real", "virtual") or not machine.targets:
        return None
    if kind == "virtual":
        return any(can_compile_ptx(f"compute_{number}", device) for device in machine.targets)
    return any(can_run_cubin(f"sm_{number}", device) for device in machine.targets)


def _serves_gfx(value: str, machine: Machine) -> bool | None:
    return any(can_run_hip(value, device) for device in machine.targets) if machine.targets else None


def _serves_rocm(value: str, machine: Machine) -> bool | None:
    """Whether the driver serves a ROCm, as far as its major says it: the image brings its own."""
    return parse_version(value)[0] in machine.majors if machine.majors else None


def _serves_device(value: str, machine: Machine) -> bool | None:
    known = [INTEL[device] for device in machine.targets if device in INTEL]
    return any(parse_version(value)[:2] == parse_version(one)[:2] for one in known) if known else None


def _serves_level(value: str, machine: Machine) -> bool | None:
    """Whether the processor has an x86-64 level; v2 where the site does not say it, as uv assumes of other machines."""
    if value not in LEVELS:
        return None
    if machine.level:
        return LEVELS.index(value) <= LEVELS.index(machine.level)
    return True if value in LEVELS[:2] else None


RULES: Mapping[str, Callable[[str, Machine], bool | None]] = {
    "nvidia :: cuda_version_lower_bound": _serves_lower,
    "nvidia :: cuda_version_upper_bound": _serves_upper,
    "nvidia :: sm_arch": _serves_sm,
    "amd :: gfx_arch": _serves_gfx,
    "amd :: rocm_version": _serves_rocm,
    "intel :: device_ip": _serves_device,
    "x86_64 :: level": _serves_level,
}

NUMBERED = {"nvidia :: cuda_version_lower_bound", "nvidia :: cuda_version_upper_bound", "amd :: rocm_version"}
NUMBER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}")


def _name_judgement(key: str, machine: Machine) -> Judgement:
    namespace, _, feature = key.partition(" :: ")
    if namespace not in VENDORS:
        return "other processor"
    if namespace != machine.vendor:
        return "CPU only" if machine.vendor == "cpu" else "other vendor"
    return "wrong runtime major" if "version" in feature else "no code for this GPU"


def _explain(key: str, values: Iterable[str], machine: Machine) -> str:
    namespace, _, feature = key.partition(" :: ")
    listed = [*values]
    text = f"the variant is for {key} :: {', '.join(listed[:SHOWN])}{', ...' if len(listed) > SHOWN else ''}"
    if namespace in VENDORS and namespace != machine.vendor:
        return f"{text}, {_name_gpu(machine)}"
    if namespace not in VENDORS:
        own = f"{machine.arch} {machine.level}" if machine.level and namespace == machine.arch else machine.arch
        return f"{text}, the processor is {own}"
    if "cuda" in feature:
        have = machine.cuda or ", ".join(str(major) for major in machine.majors)
        return f"{text}, the driver's CUDA is {have}"
    if "rocm" in feature:
        return f"{text}, the driver serves ROCm {', '.join(str(major) for major in machine.majors)}"
    return f"{text}, this GPU is {', '.join(machine.targets)}"


def _name_gpu(machine: Machine) -> str:
    return "there is no GPU" if machine.vendor == "cpu" else f"this GPU is {VENDORS[machine.vendor]}'s"
