"""Variant wheels of a few bytes, and what an index says of them (PEP 825, draft)."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
PROVIDERS = {
    "nvidia": {
        "requires": ["nvidia-variant-provider==0.0.1"],
        "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
    },
    "amd": {"requires": ["amd-variant-provider>=1.0"], "plugin-api": "amd_variant_provider.plugin:AMDVariantPlugin"},
    "x86_64": {"requires": ["x86-64-variant-provider"], "plugin-api": "x86_64_variant_provider"},
}
Variants = Mapping[str, Mapping[str, Mapping[str, list[str]]]]
GPUS: Variants = {
    "cu12": {"nvidia": {"cuda_version_lower_bound": ["12.0"], "cuda_version_upper_bound": ["13"]}},
    "cu13": {"nvidia": {"cuda_version_lower_bound": ["13.0"]}},
    "sm120": {"nvidia": {"sm_arch": ["120_real"]}},
    "rocm": {"amd": {"gfx_arch": ["gfx90a"], "rocm_version": ["6.4"]}},
}
LEVELS: Variants = {"v1": {"x86_64": {"level": ["v1"]}}, "v4": {"x86_64": {"level": ["v4"]}}}


def describe(variants: Variants) -> str:
    """The text of a variants file."""
    names = sorted({name for one in variants.values() for name in one})
    providers = {name: PROVIDERS[name] for name in names}
    found = {"$schema": SCHEMA, "default-priorities": {"namespace": names}, "variants": variants}
    return json.dumps(found | ({"providers": providers} if providers else {}))


def variant_wheel(folder: Path, name: str, label: str, variants: Variants) -> Path:
    """A wheel of release 1.0, a plain one for the label ""; its module says the label."""
    info, end = f"{name}-1.0.dist-info", f"-{label}" if label else ""
    texts = {
        f"{name}.py": f"LABEL = {label!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: own\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if label:
        texts[f"{info}/variant.json"] = describe({label: variants[label]})
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in texts.items()]
    texts[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    path = folder / f"{name}-1.0-py3-none-any{end}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in texts.items():
            archive.writestr(inside, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def variant_release(folder: Path, name: str, variants: Variants, *, plain: bool) -> None:
    """All files of release 1.0 of a package, as a folder for --find-links or an index has them."""
    for label in (*variants, *([""] if plain else [])):
        variant_wheel(folder, name, label, variants)
    (folder / f"{name}-1.0-variants.json").write_text(describe(variants))
