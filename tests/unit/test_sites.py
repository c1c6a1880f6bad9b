"""The site files and GPU tables that ship with the tool, and what is said about faulty ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.model.catalog import BUNDLED, load_site, site_files
from builder.model.document import Table, parse_yaml, walk
from builder.model.finding import BuilderError, ConfigError
from builder.model.site import Job, Site
from builder.model.stack import TABLES, driver_table, image_table, package_table, torch_table

BAD = Path(__file__).parents[1] / "bad" / "sites"
NAMES = sorted(path.stem for path in BUNDLED.glob("*.yaml"))
GPU_SITES = ["dawn", "frontier", "lumi-g", "mn5"]
CPU_SITES = ["local", "lumi-c", "mn5-gpp"]

# The LUMI user guide's binding of GCDs to cores, as lists of cores.
LUMI_CORES = {
    0: range(49, 56),
    1: range(57, 64),
    2: range(17, 24),
    3: range(25, 32),
    4: range(1, 8),
    5: range(9, 16),
    6: range(33, 40),
    7: range(41, 48),
}


def cores_of(mask: str) -> list[int]:
    return [core for core in range(64) if int(mask, 16) >> core & 1]


def jobs(site: Site) -> Iterator[tuple[str, Job]]:
    yield from site.scheduler.jobs.items()


def said(error: BuilderError) -> str:
    """The findings as they are printed, with bare file names."""
    text = ""
    for finding in error.findings:
        text += f"{finding.level}: {finding.message}\n"
        if finding.at:
            text += f"  at:  {str(finding.at).replace(finding.at.file, Path(finding.at.file).name)}\n"
        text += f"  fix: {finding.fix}\n"
    return text


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_site_loads(name: str) -> None:
    site = load_site(name)
    assert site.name == name
    assert site.base_images
    assert site.description
    assert site.build.backends


def test_the_sites_are_those_we_say() -> None:
    assert sorted(GPU_SITES + CPU_SITES) == NAMES
    assert [name for name in NAMES if load_site(name).gpu] == GPU_SITES


@pytest.mark.parametrize("name", NAMES)
def test_every_source_is_named_by_some_section(name: str) -> None:
    site = load_site(name)
    sections = [site.node, site.network, site.scheduler, site.runtime, site.build, site.launch, *site.base_images]
    named = {word for section in [*sections, *([site.gpu] if site.gpu else [])] for word in section.source}
    assert named == set(site.sources)


@pytest.mark.parametrize("name", NAMES)
def test_no_bundled_value_could_become_a_command(name: str) -> None:
    """The second look, independent of the loader's patterns: nothing that a shell expands but ${NAME}."""
    tree = parse_yaml((BUNDLED / f"{name}.yaml").read_text(encoding="utf-8"), file=name)
    assert isinstance(tree, Table)
    for key in ("runtime", "build", "launch", "scheduler", "base_images"):
        section = tree.get(key)
        assert section is not None
        for text in walk(section):
            plain = re.sub(r"\$\{[A-Z_]+\}", "", text.raw)
            prose = " " in plain and not re.match(r"(?:load|unload|use) ", plain)
            assert prose or not set(plain) & set("$`\"'\\;&|()!*?#~\n"), (text.line, text.raw)


@pytest.mark.parametrize("name", NAMES)
def test_expanded_variables_are_ones_that_a_job_has(name: str) -> None:
    text = (BUNDLED / f"{name}.yaml").read_text(encoding="utf-8")
    known = {"USER", "SLURM_JOB_ID", "SLURM_LOCALID"}
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= known
    # Outside a job there is no job id, and images are also built outside.
    site = load_site(name)
    assert "SLURM" not in site.build.tmpdir + site.build.cachedir


@pytest.mark.parametrize("name", ["lumi-g"])
def test_the_masks_are_the_core_map_of_the_user_guide(name: str) -> None:
    masks = load_site(name).launch.cpu_masks
    assert {rank: cores_of(mask) for rank, mask in enumerate(masks)} == {k: list(v) for k, v in LUMI_CORES.items()}
    used = {core for mask in masks for core in cores_of(mask)}
    assert len(used) == load_site(name).node.usable_cores
    assert not used & set(range(0, 64, 8))  # the first core of each L3 group is the system's


@pytest.mark.parametrize("name", GPU_SITES)
def test_jobs_use_the_devices_that_a_node_has(name: str) -> None:
    site = load_site(name)
    assert site.gpu is not None
    node, nodes, one = (site.scheduler.jobs[key] for key in ("node", "nodes", "gpu"))
    assert (one.nodes, node.nodes, nodes.nodes) == (1, 1, 2)
    assert (one.gpus, one.devices, one.tasks_per_node) == (1, 1, 1)
    for job in (node, nodes):
        assert (job.gpus, job.devices) == (site.gpu.scheduled, site.gpu.devices)
        ranks = 1 if site.launch.launcher == "srun-torchrun" else site.gpu.devices
        assert job.tasks_per_node == ranks
        assert job.cpus_per_task is not None
        assert job.tasks_per_node * job.cpus_per_task == site.node.usable_cores


def test_what_the_sites_of_the_seeds_demand() -> None:
    lumi, frontier, dawn, mn5 = (load_site(name) for name in ("lumi-g", "frontier", "dawn", "mn5"))
    assert [site.launch.launcher for site in (lumi, frontier, dawn, mn5)] == [
        "srun",
        "srun",
        "mpiexec",
        "srun-torchrun",
    ]
    assert [site.runtime.gpu_flag for site in (lumi, frontier, dawn, mn5)] == ["", "--rocm", "", "--nv"]
    assert lumi.build.backends == ("cotainr", "tykky")
    assert mn5.build.where == "workstation"
    assert mn5.network.internet == mn5.network.login_internet == "no"
    assert all("mem" not in job.options for _, job in jobs(mn5))
    assert all("mem" in job.options for _, job in jobs(lumi))
    assert all("partition" not in job.options and "qos" in job.options for _, job in jobs(mn5))
    assert all(site.scheduler.account == "required" for site in (lumi, frontier, dawn, mn5))
    assert lumi.gpu is not None
    assert (lumi.gpu.rocm, lumi.gpu.rocm_safe) == (("6.1", "6.2", "6.3", "6.4", "7.0"), "6.4")


@pytest.mark.parametrize("name", NAMES)
def test_base_images_hold_what_the_gpu_tables_say(name: str) -> None:
    images = {image.tag: image for image in image_table().ngc_pytorch}
    ipex = {tag: image for image in image_table().intel_ipex for tag in image.tags}
    for base in load_site(name).base_images:
        tag = base.reference.rpartition(":")[2]
        if base.family == "ngc-pytorch":
            assert base.provides["torch"] == images[tag].torch
            assert base.cuda == images[tag].cuda
            assert images[tag].python.startswith(base.python or "?")
        if base.family == "intel-ipex":
            row = ipex[tag]
            provided = (base.provides["torch"], base.provides["intel-extension-for-pytorch"])
            assert provided == (row.torch, row.ipex)
            assert (base.provides["torchvision"], base.provides["torchaudio"]) == (row.torchvision, row.torchaudio)
            assert base.python == row.python
        assert not base.reference.endswith(":latest")


@pytest.mark.parametrize("name", ["lumi-g", "frontier"])
def test_an_amd_site_serves_what_its_driver_serves(name: str) -> None:
    site = load_site(name)
    row = next(row for row in driver_table().site_drivers if row.site == name)
    windows = {window.kmd: window.user_space for window in driver_table().rocm_windows}
    assert site.gpu is not None
    assert row.until == ""
    assert site.gpu.driver == row.amdgpu
    assert site.gpu.rocm == row.user_space == windows[row.kmd]


@pytest.mark.parametrize("name", ["lumi-g", "frontier"])
def test_default_base_images_are_inside_the_drivers_window(name: str) -> None:
    site = load_site(name)
    assert site.gpu is not None
    for base in site.base_images:
        assert base.rocm is not None
        assert ".".join(base.rocm.split(".")[:2]) in site.gpu.rocm


def test_a_user_site_extends_a_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: lumi-g\nname: mine\nscheduler:\n  jobs:\n    gpu: {options: {partition: dev-g}}\n"
        "runtime: {optional_binds: [/data]}\n"
    )
    mine, lumi = load_site("mine", folder=tmp_path), load_site("lumi-g")
    assert mine.scheduler.jobs["gpu"].options == {"partition": "dev-g", "mem": "60G"}  # tables are laid over
    assert mine.runtime.optional_binds == ("/data",)  # lists replace
    assert mine.launch == lumi.launch
    assert mine.sources == lumi.sources


def test_a_users_file_wins_and_may_extend_its_namesake(tmp_path: Path) -> None:
    (tmp_path / "lumi-g.yml").write_text("extends: lumi-g\nname: lumi-g\ntitle: LUMI-G, our project\n")
    assert load_site("lumi-g", folder=tmp_path).title == "LUMI-G, our project"
    assert load_site("lumi-g", folder=tmp_path).node == load_site("lumi-g").node
    assert load_site("lumi-g").title == "LUMI-G"
    assert site_files(tmp_path)["lumi-g"] == tmp_path / "lumi-g.yml"


def test_a_site_of_two_steps_is_given_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("extends: local\nname: base\ntitle: Base\n")
    top = tmp_path / "top.yaml"
    top.write_text("extends: base\nname: top\nstorage: here\n")
    site = load_site(str(top), folder=tmp_path)
    assert (site.name, site.title, site.storage) == ("top", "Base", "here")
    with pytest.raises(ConfigError, match="there is no site 'base' to extend"):
        load_site(str(top))


@pytest.mark.parametrize(
    ("extends", "message"),
    [("lumi-gg", "there is no site 'lumi-gg' to extend"), ("[local, lumi-g]", "there is no site to extend")],
)
def test_a_site_that_extends_nobody(tmp_path: Path, extends: str, message: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"name: odd\nextends: {extends}\n")
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    (finding,) = caught.value.findings
    assert (finding.code, finding.message) == ("site-extends", message)
    assert finding.at is not None
    assert (finding.at.file, finding.at.line) == (str(path), 2)
    assert ("did you mean 'lumi-g'?" in finding.fix) == (extends == "lumi-gg")


def test_an_unknown_site_is_told_from_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_site("lumi")
    assert caught.value.findings[0].fix.startswith("did you mean 'lumi-")
    with pytest.raises(ConfigError, match="does not exist"):
        load_site(str(tmp_path / "none.yaml"))


CASES = sorted(BAD.glob("*.yaml"))


def test_there_are_faulty_sites() -> None:
    assert len(CASES) >= 35
    assert [path.stem for path in CASES] == [path.stem for path in sorted(BAD.glob("*.txt"))]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_faulty_site_is_refused_in_these_words(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_site(str(path), folder=BAD)
    assert said(caught.value) == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", finding.code) for finding in caught.value.findings)


def two(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_torch_releases_have_their_companions() -> None:
    releases = torch_table().releases
    assert [Version(row.torch) for row in releases] == sorted(Version(row.torch) for row in releases)
    assert len({row.torch for row in releases}) == len(releases)
    for row in releases:
        torch = Version(row.torch)
        vision = Version(row.torchvision)
        # torchvision is 15 minors behind torch up to 2.14; 2.15 was paired with a patch of 0.29 when it was read.
        assert vision.major == 0
        assert vision.minor == (torch.minor + 15 if torch.minor <= 14 else 29), row.torch
        if torch >= Version("2.12"):
            assert row.torchaudio == ""
        else:
            assert (Version(row.torchaudio).major, Version(row.torchaudio).minor) == (2, torch.minor), row.torch
        assert [Version(python) for python in row.pythons] == sorted(Version(python) for python in row.pythons)
        assert row.glibc in ("2.17", "2.28")


def test_tokens_of_a_release_are_tokens_of_the_index() -> None:
    table = torch_table()
    assert table.index.count("{token}") == 1
    for row in table.releases:
        for token in (*(row.cuda or ()), *(row.rocm or ())):
            assert token in table.tokens, (row.torch, token)
        if row.cuda is None:
            assert {"cuda", "rocm", "xpu"} <= set(row.unsure)
        assert all(token.startswith("cu") for token in row.cuda or ())
        assert all(token.startswith("rocm") for token in row.rocm or ())


def test_lumi_is_served_by_the_wheels_that_the_facts_compute() -> None:
    gpu = load_site("lumi-g").gpu
    assert gpu is not None
    served = {
        row.torch: [token for token in row.rocm or () if two(token.removeprefix("rocm")) in gpu.rocm]
        for row in torch_table().releases
    }
    assert served["2.3.1"] == []
    assert served["2.6.0"] == ["rocm6.1", "rocm6.2.4"]
    assert served["2.9.1"] == ["rocm6.3", "rocm6.4"]
    assert served["2.10.0"] == ["rocm7.0"]
    assert served["2.11.0"] == []


def test_the_targets_of_our_amd_sites_are_in_every_wheel() -> None:
    assert all("gfx90a" in row.gfx for row in torch_table().gfx)


def test_triton_names_cover_every_release_once() -> None:
    for vendor in ("nvidia", "amd"):
        for row in torch_table().releases:
            names = [
                name.package
                for name in torch_table().triton
                if name.vendor == vendor
                and Version(name.torch_min or "0") <= Version(row.torch) <= Version(name.torch_max or "99")
            ]
            assert len(names) == 1, (vendor, row.torch)
            if vendor == "amd" and row.triton_rocm:
                assert row.triton_rocm.startswith(names[0] + "==")


def test_image_rows_are_versions_in_order() -> None:
    tags = [image.tag for image in image_table().ngc_pytorch]
    assert tags == sorted(tags)
    assert len(set(tags)) == len(tags)
    assert "25.07-py3" not in tags
    for image in image_table().ngc_pytorch:
        assert re.fullmatch(r"2\d\.(0[1-9]|1[0-2])-py3", image.tag)
        Version(image.torch)
        Version(image.cuda)
        assert image.constraint_file == (image.tag >= "25.03")
        if image.cuda_driver is not None:
            Version(image.cuda_driver)
    for row in image_table().intel_ipex:
        assert Version(row.ipex).local == "xpu"
        assert (Version(row.torch).major, Version(row.torch).minor) == Version(row.ipex).release[:2]


def test_an_ngc_torch_is_no_release_of_its_version() -> None:
    torch = next(image.torch for image in image_table().ngc_pytorch if image.tag == "24.11-py3")
    assert not SpecifierSet(">=2.6").contains(torch, prereleases=True)
    assert SpecifierSet("==2.6.*").contains(torch, prereleases=True)


def test_driver_tables_ascend_and_agree() -> None:
    table = driver_table()
    for versions in (
        [row.cuda for row in table.cuda_toolkits],
        [row.driver for row in table.cuda_toolkits],
        [row.kmd for row in table.rocm_windows],
        [row.amdgpu for row in table.amdgpu_versions],
    ):
        assert versions == sorted(versions, key=Version)
    for window in table.rocm_windows:
        assert list(window.user_space) == sorted(window.user_space, key=Version)
        assert all(re.fullmatch(r"\d+\.\d+", release) for release in window.user_space)
    windows = {row.kmd: row.user_space for row in table.rocm_windows}
    for row in table.rocm_user_spaces:
        for kmd in row.kmd:
            assert two(row.rocm) in windows[kmd], (row.rocm, kmd)
    assert all(row.kmd in windows or not row.user_space or row.until for row in table.site_drivers)


def test_the_driver_of_a_toolkit_serves_its_major() -> None:
    table = driver_table()
    least = {row.major: Version(row.min_driver) for row in table.cuda_majors}
    for row in table.cuda_toolkits:
        if Version(row.cuda) >= Version("11.1"):  # 11.0 came before minor-version compatibility
            assert Version(row.driver) >= least[Version(row.cuda).major], row.cuda


def test_package_rows_are_about_known_things() -> None:
    table = package_table()
    names = [row.name for row in table.packages]
    assert len(set(names)) == len(names)
    releases = {row.torch for row in torch_table().releases}
    for row in table.packages:
        assert row.nvidia or row.amd or row.intel or row.silent_loss
        assert set(row.minimum) <= set(row.pypi)
    for pin in table.torch_pins:
        SpecifierSet(pin.torch)
        Version(pin.version)
        if pin.torch.startswith("=="):
            assert pin.torch.removeprefix("==") in releases
    for marker in table.markers:
        assert marker.kind == "conda" or not marker.build


def test_every_table_says_where_it_was_read() -> None:
    assert sorted(path.name for path in TABLES.glob("*.yaml")) == [
        "drivers.yaml",
        "images.yaml",
        "packages.yaml",
        "torch.yaml",
    ]
    for table in (torch_table(), image_table(), driver_table(), package_table()):
        assert table.sources
        assert all(re.fullmatch(r"20\d\d-\d\d(-\d\d)?", source.checked) for source in table.sources)
