"""Before an image is published its packages are held against the site's GPU, on every backend."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import QUICK, Done, Room, report_of
from stand_ins.images import stand_in_debian
from support.made_elf import bundle, elf, fatbin
from support.variant_wheels import GPUS, LEVELS, variant_release, variant_wheel
from test_cotainr import SITE as COTAINR
from test_cotainr import Lumi
from test_tykky import SITE as TYKKY
from test_tykky import Tykky

pytestmark = pytest.mark.engines

SITE = """
    extends: local
    gpu:
      vendor: nvidia
      model: a stand-in, there is no GPU here
      target: sm_90
      devices: 1
      scheduled: 1
      memory_gib: 64
      driver: "535.86.10"
      driver_checked: "2026-11-21"
      source: [own]
    base_images:
      - reference: {base}
        python: "3.11"
        glibc: "2.36"
        source: [own]
"""
ROCM = """
    extends: local
    gpu:
      vendor: amd
      model: a stand-in, there is no GPU here
      target: gfx90a
      devices: 1
      scheduled: 1
      memory_gib: 64
      driver: "6.3"
      driver_checked: "2026-11-21"
      source: [own]
    base_images:
      - reference: {base}
        python: "3.11"
        glibc: "2.36"
        source: [own]
"""
RECIPE = """
    name: {name}
    dependencies:
      - pip: [{package}==1.0, six==1.16.0]
"""
OLD = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 70, "", ""))})
FITS = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
NEWER = elf(needed=["libcudart.so.13"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
HIP = elf(needed=["libamdhip64.so.6"], sections={".hip_fatbin": bundle("gfx90a")})
PLAIN = elf(needed=["libc.so.6"])


def kernels(folder: Path, name: str, content: bytes, *, requires: str = "") -> None:
    """A stand-in for a wheel with one library."""
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    files: dict[str, bytes] = {
        f"{module}/__init__.py": b"",
        f"{module}/kernels.so": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]).encode()
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)


class Site:
    """A room with a site that has a GPU, and wheels for and against it."""

    def __init__(self, room: Room, base: str) -> None:
        self.room = room
        self.name = room.site("stand-in-gpu", SITE.format(base=base))
        self.wheels = room.folder / "wheels"
        made = {"made-old": OLD, "made-fits": FITS, "made-newer": NEWER, "made-hip": HIP, "onnxruntime": PLAIN}
        for name, content in made.items():
            kernels(self.wheels, name, content)
        kernels(self.wheels, "made-user", PLAIN, requires="Requires-Dist: onnxruntime==1.0\n")

    def build(
        self, package: str, *words: str, name: str = "", more: str = "", site: str = "", **environment: str
    ) -> Done:
        name = name or package
        recipe = self.room.write(f"{name}.yml", RECIPE.format(name=name, package=package) + more)
        output = self.room.folder / f"{name}.sif"
        own = {"PIP_FIND_LINKS": str(self.wheels), "RECIPE_CACHE_DIR": str(self.room.folder / "cache")}
        return self.room.recipe(
            "build", site or self.name, recipe, "-o", output, "--no-smoke", *words, **own, **environment
        )

    def refused(self, name: str) -> tuple[Path, str]:
        """The plan folder of a build that the audit stopped, and what the audit said."""
        plan = self.room.folder / f"{name}.plan"
        report = report_of(plan)
        found = [finding for finding in report["findings"] if finding["code"] == "gpu-audit"]
        assert (report["status"], len(found)) == ("smoke-failed", 1), report
        assert not (self.room.folder / f"{name}.sif").exists()
        (draft,) = [path for path in plan.iterdir() if path.name.endswith(".failed")]
        assert draft.stat().st_size
        assert not json.loads((plan / "gpu-audit.json").read_text())["ok"]
        assert [path for path in self.room.left_behind() if not path.startswith(str(self.wheels))] == []
        return plan, str(found[0]["message"])


@pytest.fixture(scope="module")
def site(rooms: Callable[[str], Room], base_sif: Path) -> Site:
    return Site(rooms("audit"), str(base_sif))


def test_layers_refuse_code_for_another_gpu(site: Site) -> None:
    done = site.build("made-old").expect(6)
    plan, said = site.refused("made-old")
    assert "'made-old' 1.0 is wrong for 'stand-in-gpu': it has code for sm_70, this GPU is sm_90" in said
    assert "made_old/kernels.so" in said
    assert "--ignore gpu-audit" in done.err
    verdicts = json.loads((plan / "gpu-audit.json").read_text())["verdicts"]
    assert [(one["name"], one["verdict"], one["wrong"]) for one in verdicts] == [
        ("made-old", "no code for this GPU", True)
    ]


@pytest.mark.parametrize(
    ("package", "why"),
    [
        ("made-newer", "it needs libcudart.so.13 (CUDA 13), the driver serves CUDA 11, 12"),
        ("made-hip", "it is for AMD"),
    ],
)
def test_layers_refuse_another_runtime_and_vendor(site: Site, package: str, why: str) -> None:
    site.build(package).expect(6)
    assert why in site.refused(package)[1]


def test_layers_refuse_a_framework_that_came_unplanned(site: Site) -> None:
    site.build("made-user").expect(6)
    assert (
        "'onnxruntime' 1.0 is wrong for 'stand-in-gpu': it is the build without a GPU" in site.refused("made-user")[1]
    )
    assert "container.gpu" in site.room.log(site.room.folder / "made-user.plan")


def test_a_recipe_for_cpus_too_takes_it(site: Site) -> None:
    site.build("made-user", name="both", more="    container: {gpu: [nvidia, cpu]}\n").expect(0)
    assert json.loads((site.room.folder / "both.plan" / "gpu-audit.json").read_text())["ok"]


def test_a_cuda_wheel_that_came_to_a_rocm_site(site: Site, base_sif: Path) -> None:
    """The wheel is NVIDIA's own, of the default index; what requires it is a stand-in."""
    site.room.site("stand-in-rocm", ROCM.format(base=base_sif))
    requires = "Requires-Dist: nvidia-cuda-runtime-cu12==12.9.79\n"
    kernels(site.wheels, "made-cuda-user", PLAIN, requires=requires)
    site.build("made-cuda-user", site="stand-in-rocm").expect(6)
    said = site.refused("made-cuda-user")[1]
    assert "'nvidia-cuda-runtime-cu12' 12.9.79 is wrong for 'stand-in-rocm': it is for NVIDIA" in said


def test_what_fits_is_published_and_judged_from_the_cache(site: Site) -> None:
    site.build("made-fits").expect(0)
    plan = site.room.folder / "made-fits.plan"
    first = json.loads((plan / "gpu-audit.json").read_text())
    assert (first["ok"], [one["verdict"] for one in first["verdicts"]]) == (True, ["uses this GPU"])
    facts = {path.name: path.stat().st_mtime_ns for path in (site.room.folder / "cache").rglob("audit-*.json")}
    assert len(facts) >= 2
    site.build("made-fits", "--force").expect(0)
    again = {path.name: path.stat().st_mtime_ns for path in (site.room.folder / "cache").rglob("audit-*.json")}
    assert again == facts
    assert json.loads((plan / "gpu-audit.json").read_text()) == first


def test_fetch_judges_what_a_build_would_refuse(site: Site) -> None:
    recipe = site.room.write("fetched.yml", RECIPE.format(name="fetched", package="made-newer"))
    own = {"PIP_FIND_LINKS": str(site.wheels), "RECIPE_CACHE_DIR": str(site.room.folder / "fetched-cache")}
    done = site.room.recipe("fetch", site.name, recipe, **own).expect(6)
    assert "it needs libcudart.so.13 (CUDA 13), the driver serves CUDA 11, 12" in done.err
    site.room.recipe("fetch", site.name, recipe, **own).expect(6)  # the second time from what is kept
    assert list((site.room.folder / "fetched-cache").rglob("audit-*.json"))


def test_what_is_ignored_is_published_with_its_verdict(site: Site) -> None:
    site.build("made-old", "--ignore", "gpu-audit", name="ignored").expect(0)
    plan = site.room.folder / "ignored.plan"
    report = json.loads((plan / "gpu-audit.json").read_text())
    assert (report["ok"], report["ignored"]) == (False, True)
    assert "ignored" in site.room.log(plan)


def test_apptainer_refuses_code_for_another_gpu(site: Site) -> None:
    site.build("made-old", "--backend", "apptainer", name="defined", **QUICK).expect(6)
    assert "it has code for sm_70, this GPU is sm_90" in site.refused("defined")[1]


PREVIEW = {
    "UV_PREVIEW": "1",
    "UV_PREVIEW_FEATURES": "wheel-variants",
    "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.2",
}


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_no_build_takes_a_variant_by_itself(site: Site, backend: str) -> None:
    variant_release(site.wheels, "made_level", LEVELS, plain=True)
    variant_release(site.wheels, "made_variants", GPUS, plain=False)
    name = f"level-{backend}"
    site.build("made-level", "--backend", backend, name=name, **PREVIEW).expect(0)
    assert "variant" not in (site.room.folder / f"{name}.plan" / "gpu-audit.json").read_text()
    done = site.build("made-variants", "--backend", backend, name=f"variants-{backend}", **PREVIEW).expect(5)
    assert "'made-variants' has variant wheels alone" in done.err
    assert "made_variants-1.0-variants.json" in done.err


def test_a_variant_for_another_driver_is_refused(site: Site) -> None:
    for name, label in (("made_right", "cu12"), ("made_wrong", "cu13")):
        path = variant_wheel(site.wheels, name, label, GPUS)
        path.rename(site.wheels / f"{name}-1.0-py3-none-any.whl")
    site.build("made-wrong").expect(6)
    said = site.refused("made-wrong")[1]
    assert "the variant is for nvidia :: cuda_version_lower_bound :: 13.0, the driver's CUDA is 12.2" in said
    site.build("made-right").expect(0)
    assert "'made-right' 1.0 is the variant 'cu12'" in site.room.log(site.room.folder / "made-right.plan")


def test_docker_refuses_when_the_archive_is_converted(
    rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path
) -> None:
    del docker_daemon
    room = rooms("audit-docker")
    site = Site(room, f"docker://{stand_in_debian(base_tar)}")
    site.build("made-newer", "--backend", "docker", **QUICK).expect(6)
    plan, said = site.refused("made-newer")
    assert "it needs libcudart.so.13 (CUDA 13), the driver serves CUDA 11, 12" in said
    assert [step["status"] for step in report_of(plan)["steps"]][:2] == ["ok", "failed"]


def test_cotainr_refuses_a_wheel_of_another_vendor(rooms: Callable[[str], Room], base_sif: Path) -> None:
    lumi = Lumi(rooms("audit-cotainr"), base_sif)
    text = COTAINR.format(base=base_sif, tmp=lumi.room.tmp, cache=lumi.room.folder / "cache")
    lumi.site = lumi.room.site("stand-in-lumi-g", text.replace("lumi-c", "lumi-g").replace("[own]", "[userguide]"))
    wheels = lumi.room.folder / "wheels"
    kernels(wheels, "made-old", OLD)
    recipe = "name: wrong\nchannels: [conda-forge]\ndependencies: [python=3.11, pip: [made-old==1.0]]\n"
    words = ("--accept-licenses", "--no-smoke", "--backend", "cotainr")
    lumi.build("wrong", recipe, *words, PIP_FIND_LINKS=str(wheels)).expect(6)
    report = report_of(lumi.room.folder / "wrong.plan")
    (found,) = [finding for finding in report["findings"] if finding["code"] == "gpu-audit"]
    assert (
        "'made-old' 1.0 is wrong for 'stand-in-lumi-g': it is for NVIDIA (sm_70), this GPU is AMD's" in found["message"]
    )
    assert not (lumi.room.folder / "wrong.sif").exists()


def test_tykky_refuses_a_wheel_of_another_vendor(rooms: Callable[[str], Room]) -> None:
    tykky = Tykky(rooms("audit-tykky"))
    room = tykky.room
    text = TYKKY.format(tmp=room.tmp, cache=room.folder / "cache").replace("lumi-c", "lumi-g")
    site = room.site("stand-in-lumi-g", text)
    kernels(room.folder / "wheels", "made-old", OLD)
    recipe = "name: wrong\nchannels: [conda-forge]\ndependencies: [python=3.11, pip: [made-old==1.0]]\n"
    words = (site, room.write("wrong.yml", recipe), "-o", room.folder / "wrong", "--no-smoke", "--backend", "tykky")
    room.recipe("build", *words, PATH=tykky.path, PIP_FIND_LINKS=str(room.folder / "wheels")).expect(6)
    (found,) = [one for one in report_of(room.folder / "wrong.plan")["findings"] if one["code"] == "gpu-audit"]
    assert "'made-old' 1.0 is wrong for 'stand-in-lumi-g': it is for NVIDIA (sm_70)" in found["message"]
    assert not (room.folder / "wrong").exists()
