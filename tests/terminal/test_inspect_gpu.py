"""recipe inspect --gpu at a terminal of 80 columns; the wheels are stand-ins made of what the audit reads."""

from __future__ import annotations

import json

import pytest
from conftest import Seat
from screen import broken, faults
from support.made_elf import bundle, elf, fatbin, installed, wheel
from support.variant_wheels import GPUS, describe

CUDA = elf(
    needed=["libcudart.so.12", "libcuda.so.1"], glibc=["GLIBC_2.17"],
    sections={".nv_fatbin": fatbin(*(("cubin", number, "", "") for number in (60, 70, 75, 80, 86, 90)))},
)  # fmt: skip
HIP = elf(needed=["libamdhip64.so.6"], sections={".hip_fatbin": bundle("gfx90a", "gfx942", "gfx1100")})


@pytest.fixture
def furnished(seat: Seat) -> Seat:
    """A wheel for two vendors, one for NVIDIA, and a folder."""
    wheel(seat.work / "two_vendors-1.0-py3-none-any.whl", {"two/a.so": CUDA, "two/b.so": HIP}, tag="py3-none-any")
    wheel(seat.work / "one_vendor-2.0-py3-none-any.whl", {"one/a.so": CUDA}, tag="py3-none-any")
    installed(seat.work / "env/lib/python3.12/site-packages", "fine", {"fine/a.so": HIP})
    installed(seat.work / "env/lib/python3.12/site-packages", "wrong", {"wrong/a.so": CUDA})
    installed(seat.work / "env/lib/python3.12/site-packages", "plain", {"plain/a.so": elf()})
    return seat


def test_what_a_wheel_holds(furnished: Seat) -> None:
    shown = furnished.type("recipe inspect --gpu two_vendors-1.0-py3-none-any.whl")
    assert (shown.code, faults(shown)) == (0, [])
    assert "two-vendors 1.0, glibc 2.17" in shown.lines
    assert "NVIDIA  CUDA 12  sm_60, sm_70, sm_75, sm_80, sm_86, sm_90" in shown.text
    assert "AMD     ROCm 6   gfx90a, gfx942, gfx1100" in shown.text
    wide = furnished.type("recipe inspect --gpu two_vendors-1.0-py3-none-any.whl", columns=120)
    assert broken(shown, wide) == []


@pytest.mark.parametrize("site", ["lumi-g", "mn5"])
def test_a_wheel_that_is_right_for_a_site(site: str, furnished: Seat) -> None:
    shown = furnished.type(f"recipe inspect two_vendors-1.0-py3-none-any.whl --gpu --site {site}")
    assert (shown.code, faults(shown)) == (0, [])
    assert "uses this GPU  two-vendors 1.0" in shown.text


def test_a_wheel_that_is_wrong_for_a_site(furnished: Seat) -> None:
    shown = furnished.type("recipe inspect one_vendor-2.0-py3-none-any.whl --gpu --site lumi-g")
    assert (shown.code, faults(shown)) == (6, [])
    assert "BAD  other vendor  one-vendor 2.0" in shown.text
    assert "]: 'one-vendor' is wrong for 'lumi-g': it is for NVIDIA (sm_60, " in shown.text
    assert "  at:  one/a.so" in shown.lines


def test_a_folder_with_several_packages(furnished: Seat) -> None:
    shown = furnished.type("recipe inspect env --gpu --site lumi-g")
    assert (shown.code, faults(shown)) == (6, [])
    assert "1 package with ELF files and no need of a GPU" in shown.text
    text = shown.text
    assert text.index("other vendor") < text.index("uses this GPU")


def test_json_for_other_programs(furnished: Seat) -> None:
    shown = furnished.type("recipe inspect env --gpu --site lumi-g --format json -q", columns=None)
    assert shown.code == 6
    found, _ = json.JSONDecoder().raw_decode(shown.raw)
    assert (found["schema"], found["kind"], found["ok"], found["site"]["targets"]) == (1, "folder", False, ["gfx90a"])
    assert [(row["name"], row["verdict"], row["wrong"]) for row in found["verdicts"]] == [
        ("fine", "uses this GPU", False), ("plain", "CPU only", False), ("wrong", "other vendor", True),
    ]  # fmt: skip
    (file,) = found["distributions"][0]["files"]
    assert [code["target"] for code in file["code"]] == ["gfx1100", "gfx90a", "gfx942"]
    assert file["needs"] == [{"name": "libamdhip64.so.6", "vendor": "amd", "major": 6, "driver": False}]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("recipe inspect env --site lumi-g", "--site goes with --gpu"),
        ("recipe inspect env --gpu --integrity", "--integrity does not go with --gpu"),
        ("recipe inspect env --gpu --site lumig", "lumi-g"),
        ("recipe inspect gone.whl --gpu", "'gone.whl' does not exist"),
        ("recipe inspect env.yml --gpu", "'env.yml' cannot be read"),
    ],
)
def test_what_cannot_be_inspected(line: str, what: str, furnished: Seat) -> None:
    furnished.write({"env.yml": "name: x\n"})
    shown = furnished.type(line)
    assert (shown.code, faults(shown)) == (2, [])
    assert what in shown.text


def test_the_help_has_examples(seat: Seat) -> None:
    shown = seat.type("recipe inspect --help")
    assert [line.strip() for line in shown.lines if line.startswith("    recipe inspect")] == [
        "recipe inspect image.sif --integrity", "recipe inspect x.whl --gpu --site lumi-g",
    ]  # fmt: skip


def test_the_variants_of_a_release(furnished: Seat) -> None:
    furnished.write({"only-1.0-variants.json": describe(GPUS), "odd-1.0-variants.json": '{"variants": []}'})
    shown = furnished.type("recipe inspect --gpu only-1.0-variants.json --site lumi-g")
    assert (shown.code, faults(shown)) == (0, [])
    assert next(line.split()[:2] for line in shown.lines if line.startswith(("ok", "BAD"))) == ["ok", "rocm"]
    shown = furnished.type("recipe inspect --gpu only-1.0-variants.json --site dawn")
    assert (shown.code, faults(shown)) == (6, [])
    assert "error[wheel-variant]: 'dawn' serves none of the variants" in shown.text
    shown = furnished.type("recipe inspect --gpu only-1.0-variants.json --site mn5 --format json -q", columns=None)
    found, _ = json.JSONDecoder().raw_decode(shown.raw)
    assert (found["kind"], found["ok"], found["site"]) == ("variants", True, {"name": "mn5"})
    assert [row["label"] for row in found["variants"] if row["serves"]] == ["cu12"]
    shown = furnished.type("recipe inspect --gpu odd-1.0-variants.json --site mn5")
    assert (shown.code, faults(shown)) == (2, [])
