"""The site files that ship with the tool, a user's own, and what is said about faulty ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty import Faulty, faulty, said
from support.rows import rows

from builder.cli.inputs import find_sites_folder
from builder.execute.machine import find_other_site
from builder.model.finding import ConfigError
from builder.model.site import Job, Site
from builder.parse.driver_tables import load_driver_table
from builder.parse.gpu_tables import load_image_table
from builder.parse.site import BUNDLED, find_site_files, load_site, read_bundled_hostnames
from builder.parse.yaml import Table, parse_yaml, walk

NAMES = sorted(path.stem for path in BUNDLED.glob("*.yaml"))
GPU_SITES = [name for name in NAMES if load_site(name).gpu]

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


@rows("name", NAMES)
def test_a_bundled_site_loads(name: str) -> None:
    site = load_site(name)
    assert site.name == name
    assert site.base_images
    assert site.description
    assert site.build.backends


@rows("name", NAMES)
def test_every_source_is_named_by_some_section(name: str) -> None:
    site = load_site(name)
    named = {
        *site.node.source,
        *site.network.source,
        *site.scheduler.source,
        *site.runtime.source,
        *site.build.source,
        *site.launch.source,
        *(site.gpu.source if site.gpu else ()),
        *(word for image in site.base_images for word in image.source),
    }
    assert named == set(site.sources)


@rows("name", NAMES)
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


@rows("name", NAMES)
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


@rows("name", GPU_SITES)
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
    assert lumi.build.backends == ("cotainr", "tykky", "layers", "apptainer")
    assert mn5.build.where == "workstation"
    assert mn5.network.internet == mn5.network.login_internet == "no"
    assert all("mem" not in job.options for _, job in jobs(mn5))
    assert all("mem" in job.options for _, job in jobs(lumi))
    assert all("partition" not in job.options and "qos" in job.options for _, job in jobs(mn5))
    assert all(site.scheduler.account == "required" for site in (lumi, frontier, dawn, mn5))
    assert lumi.gpu is not None
    assert (lumi.gpu.rocm, lumi.gpu.rocm_safe) == (("6.1", "6.2", "6.3", "6.4", "7.0"), "6.4")


@rows("name", NAMES)
def test_base_images_hold_what_the_gpu_tables_say(name: str) -> None:
    images = {image.tag: image for image in load_image_table().ngc_pytorch}
    ipex = {tag: image for image in load_image_table().intel_ipex for tag in image.tags}
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
    row = next(row for row in load_driver_table().site_drivers if row.site == name)
    windows = {window.kmd: window.user_space for window in load_driver_table().rocm_windows}
    assert site.gpu is not None
    assert row.until == ""
    assert site.gpu.driver == row.amdgpu
    assert site.gpu.rocm == row.user_space == windows[row.kmd]


@pytest.mark.parametrize("name", ["lumi-g", "frontier"])
def test_default_base_images_are_inside_the_drivers_window(name: str) -> None:
    site = load_site(name)
    assert site.gpu is not None
    releases = [".".join((base.rocm or "").split(".")[:2]) for base in site.base_images]
    assert set(releases) <= {*site.gpu.rocm, *site.gpu.rocm_disputed}
    assert releases[0] in site.gpu.rocm


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


def test_a_user_site_takes_away_what_another_says(tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text(
        "extends: lumi-g\nname: bare\ngpu:\n"  # the whole section
        "scheduler: {jobs: {gpu: , node: , nodes: }, account_form: }\n"  # entries of a table; a text
        "launch: {cpu_masks: [], multi_node_environment: {}, node_local_dirs: ,"
        " environment: {MIOPEN_USER_DB: }}\n"
    )
    bare, lumi = load_site("bare", folder=tmp_path), load_site("lumi-g")
    assert bare.gpu is None
    assert set(bare.scheduler.jobs) == set(lumi.scheduler.jobs) - {"gpu", "node", "nodes"}
    assert (lumi.scheduler.account_form, bare.scheduler.account_form) == ("project_<number>", "")
    assert bare.scheduler.version == lumi.scheduler.version
    launch = bare.launch
    emptied = (launch.cpu_masks, launch.multi_node_environment, launch.node_local_dirs)
    assert emptied == ((), {}, ())
    assert set(launch.environment) == set(lumi.launch.environment) - {"MIOPEN_USER_DB"}
    (tmp_path / "again.yaml").write_text("extends: bare\nname: again\nlaunch: {unset: [X]}\n")
    assert load_site("again", folder=tmp_path).gpu is None  # taken away for those that extend it too


def test_a_users_file_wins_and_may_extend_its_namesake(tmp_path: Path) -> None:
    (tmp_path / "lumi-g.yml").write_text("extends: lumi-g\nname: lumi-g\ntitle: LUMI-G, our project\n")
    assert load_site("lumi-g", folder=tmp_path).title == "LUMI-G, our project"
    assert load_site("lumi-g", folder=tmp_path).node == load_site("lumi-g").node
    assert load_site("lumi-g").title == "LUMI-G"
    assert find_site_files(tmp_path)["lumi-g"] == tmp_path / "lumi-g.yml"


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
def test_a_site_that_extends_no_known_site(tmp_path: Path, extends: str, message: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"name: odd\nextends: {extends}\n")
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    (finding,) = caught.value.findings
    assert (finding.code, finding.message) == ("site-extends", message)
    assert finding.at is not None
    assert (finding.at.file, finding.at.line) == (str(path), 2)
    assert ("did you mean 'lumi-g'?" in finding.fix) == (extends == "lumi-gg")


def test_faults_are_reported_when_the_extended_site_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("name: odd\nextends: lumi-gg\nnode: {cores: many}\nnode: {cores: 4}\ntitel: x\n")
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    told = [(finding.at.line if finding.at else 0, finding.message) for finding in caught.value.findings]
    assert told == [
        (2, "there is no site 'lumi-gg' to extend"),
        (3, "expected a whole number, found the text 'many'"),
        (4, "the key 'node' occurs twice, first in line 3"),
        (5, "unknown key 'titel'"),
    ]


def test_an_unknown_site_is_told_from_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_site("lumi")
    assert caught.value.findings[0].fix.startswith("did you mean 'lumi-")
    with pytest.raises(ConfigError, match="does not exist"):
        load_site(str(tmp_path / "none.yaml"))


@rows("case", faulty("site"), ids=lambda case: case.name)
def test_a_faulty_site_is_refused_in_these_words(case: Faulty, tmp_path: Path) -> None:
    folder = case.placed(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_site(str(folder / case.path), folder=folder)
    assert said(caught.value) == case.expected
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", finding.code) for finding in caught.value.findings)


def test_host_names_of_bundled_sites_are_those_of_their_files() -> None:
    assert read_bundled_hostnames() == {name: load_site(name).hostnames for name in find_site_files()}


def test_a_machine_of_another_site_is_known_by_its_name() -> None:
    assert find_other_site(load_site("dawn"), host="glogin1.bsc.es") == "mn5-gpp"
    assert find_other_site(load_site("dawn"), host="login-s-3") == ""
    assert find_other_site(load_site("lumi-g"), host="my-laptop") == ""
    assert find_other_site(load_site("local"), host="glogin1") == ""


def test_a_home_of_another_user_hides_no_bundled_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.geteuid():
        pytest.skip("root may read everything")
    own = tmp_path / "home" / ".config" / "recipe" / "sites"
    own.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("RECIPE_SITES", raising=False)
    for closed in (tmp_path / "home", own):
        closed.chmod(0)
        try:
            assert list(find_site_files(find_sites_folder())) == NAMES
            assert load_site("local", folder=find_sites_folder()) == load_site("local")
        finally:
            closed.chmod(0o700)
