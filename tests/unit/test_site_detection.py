"""recipe init site: what Slurm and the kernel say becomes a site file that every command takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.execute.site_detection import CONFIG, SINFO, MachineFacts, Partition, detect_machine
from builder.execute.site_draft import make_draft
from builder.model.site import Site
from builder.parse.site import load_site
from builder.system.gpus import QUERY, Device

TODAY = "2026-11-23"
A100 = Partition(name="gpu", nodes=40, cores=64, memory_gib=500, gpus=4, gpu="a100", minutes=1440)
CPUS = Partition(name="cpu", nodes=200, cores=128, memory_gib=250, minutes=4320, default=True)
CLUSTER = MachineFacts(
    host="login2", arch="x86_64", cores=32, memory_gib=128, cluster="tiger", scheduler="24.05.8", account_required=True,
    partitions=(CPUS, A100), engines={"apptainer": "1.4.1"}, user_namespaces=True, shared=("/scratch", "/home"),
    interfaces=("ib0",),
)  # fmt: skip
H100 = Device(vendor="nvidia", model="NVIDIA H100 80GB HBM3", target="sm_90", memory_gib=80, driver="550.54.15")


def site_of(folder: Path, facts: MachineFacts | None, *, name: str = "tiger") -> Site:
    path = folder / f"{name}.yaml"
    path.write_text(make_draft(facts, name=name, today=TODAY).text, encoding="utf-8")
    return load_site(str(path))


def detected(root: Path, answers: Mapping[tuple[str, ...], str], **environment: str) -> MachineFacts:
    def ask(argv: Sequence[str]) -> str:
        return answers.get(tuple(argv), "")

    return detect_machine(environment={"PATH": str(root), **environment}, root=root, ask=ask)


def test_a_cluster_becomes_a_site(tmp_path: Path) -> None:
    site = site_of(tmp_path, CLUSTER)
    assert (site.title, site.scheduler.kind, site.scheduler.version) == ("tiger", "slurm", "24.05.8")
    assert (site.scheduler.account, site.launch.launcher) == ("required", "srun")
    assert site.gpu is not None
    assert (site.gpu.vendor, site.gpu.target, site.gpu.devices, site.gpu.driver) == ("nvidia", "sm_80", 4, None)
    shapes = {
        name: (job.nodes, job.tasks_per_node, job.cpus_per_task, job.gpus) for name, job in site.scheduler.jobs.items()
    }
    assert shapes == {"gpu": (1, 1, 16, 1), "node": (1, 4, 16, 4), "nodes": (2, 4, 16, 4), "build": (1, 1, 16, 0)}
    assert {name: job.options["partition"] for name, job in site.scheduler.jobs.items()} == {
        "gpu": "gpu", "node": "gpu", "nodes": "gpu", "build": "cpu",
    }  # fmt: skip
    assert (site.runtime.gpu_flag, site.runtime.optional_binds) == ("--nv", ("/scratch", "/home"))
    assert site.launch.cache_not_under == ("/scratch", "/home")
    assert site.hostnames == ("login*",)
    assert (site.build.fakeroot, site.build.proot, site.network.internet) == ("unknown", "unknown", "unknown")
    assert any("driver of the GPUs" in text for text in site.unknown)


def test_a_gpu_node_knows_its_driver_and_cores(tmp_path: Path) -> None:
    devices = tuple(replace(H100, cores=cores) for cores in ("0-15", "16-31"))
    site = site_of(tmp_path, replace(CLUSTER, devices=devices))
    assert site.gpu is not None
    assert (site.gpu.driver, site.gpu.devices, site.gpu.memory_gib) == ("550.54.15", 4, 80)  # a job had two of them
    assert site.gpu.note == "the cores next to each device: 0: 0-15; 1: 16-31"


def test_a_workstation_has_no_scheduler(tmp_path: Path) -> None:
    facts = MachineFacts(
        host="desk7", arch="x86_64", cores=8, memory_gib=64, devices=(H100,), engines={"docker": "27.1"}
    )
    site = site_of(tmp_path, facts)
    assert (site.scheduler.kind, site.launch.launcher, site.runtime.gpu_flag) == ("none", "plain", "--nv")
    assert site.build.backends == ("apptainer", "layers", "docker")
    assert (site.node.cores, site.runtime.zstd) == (8, "yes")  # as for the site of this machine
    assert any("container runtime" in text for text in site.unknown)


def test_without_facts_everything_is_unknown(tmp_path: Path) -> None:
    site = site_of(tmp_path, None)
    assert (site.node.cores, site.runtime.version, site.build.user_namespaces) == (None, None, "unknown")
    assert site.unknown == ("everything in this file",)


def test_gpus_that_the_scheduler_does_not_name_are_a_comment(tmp_path: Path) -> None:
    facts = replace(CLUSTER, partitions=(CPUS, replace(A100, gpu="")))
    assert site_of(tmp_path, facts).gpu is None
    text = make_draft(facts, name="tiger", today=TODAY).text
    assert "# gpu: 4 a node" in text
    assert "srun --partition=gpu --gres=gpu:1 recipe init site tiger --detect --force" in text


@rows("word", ["yes", "a: b", "{x}", "# no", 'it\'s "quoted"', "- x", "", "é"])
def test_words_of_a_machine_stay_words(word: str, tmp_path: Path) -> None:
    site = site_of(tmp_path, replace(CLUSTER, cluster=word, system=word))
    assert site.title == (word or "tiger")
    assert site.node.os == (word or None)


def test_sinfo_and_scontrol_are_read(tmp_path: Path) -> None:
    sinfo = (
        "cpu*|10|64+|256000+|(null)|infinite\n"
        "gpu|4|64|512000|gpu:a100:4(S:0-1)|1-12:30:00\n"
        "any|2|8|16000|gpu:2,craynetwork:4|30:00\n"
        "rm -rf /|2|8|16000|(null)|30:00\n"
        "broken line\n"
    )
    config = "ClusterName     = tiger\nSLURM_VERSION = 24.05.8\nAccountingStorageEnforce = associations,limits\n"
    facts = detected(tmp_path, {SINFO: sinfo, CONFIG: config})
    assert facts.partitions == (
        Partition(name="cpu", nodes=10, cores=64, memory_gib=250, default=True),
        Partition(name="gpu", nodes=4, cores=64, memory_gib=500, gpus=4, gpu="a100", minutes=2190),
        Partition(name="any", nodes=2, cores=8, memory_gib=15, gpus=2, minutes=30),
    )
    assert (facts.cluster, facts.scheduler, facts.account_required) == ("tiger", "24.05.8", True)


def test_the_kernel_is_read(tmp_path: Path) -> None:
    files = {
        "proc/mounts": "x /scratch lustre rw 0 0\ny / ext4 rw 0 0\nz /a\\040b nfs4 rw 0 0\nw /home nfs4 rw 0 0\n",
        "proc/meminfo": "MemTotal:       131891204 kB\n",
        "etc/os-release": 'PRETTY_NAME="Rocky Linux 9.4"\n',
        "sys/class/net/hsn0/operstate": "up\n",
        "sys/class/net/ib0/operstate": "down\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,2\n",
        "sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1,3\n",
        "sys/devices/system/cpu/cpu2/topology/thread_siblings_list": "0,2\n",
        "modules/apptainer/1.3.lua": "",
        "proc/driver/nvidia/version": "NVRM\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    line = "NVIDIA A100-SXM4-40GB, 535.86.10, 40960, 8.0, 00000000:07:00.0\n"
    facts = detected(tmp_path, {QUERY: line}, MODULEPATH=f"/none:{tmp_path / 'modules'}")
    assert (facts.shared, facts.interfaces, facts.system) == (("/scratch", "/home"), ("hsn0",), "Rocky Linux 9.4")
    assert (facts.cores, facts.memory_gib, facts.engine_modules) == (2, 126, ("apptainer",))
    assert [device.model for device in facts.devices] == ["NVIDIA A100-SXM4-40GB"]
    site = site_of(tmp_path, facts)
    assert site.runtime.modules == ("load apptainer",)


def test_a_site_file_is_written_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "site", "tiger"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "tiger.yaml\n"
    assert "unknown: everything in this file\nnext: recipe check ./tiger.yaml ENV" in shown.err
    assert run(["sites", "./tiger.yaml"]) == 0
    assert run(["init", "site", "tiger"]) == 2
    assert "'tiger.yaml' exists already" in capsys.readouterr().err
    assert run(["init", "site", "tiger", "-f"]) == 0
    (tmp_path / "env.yaml").write_text("name: env\ndependencies: [python]\n")
    assert run(["init", "site", "env", "-f"]) == 2
    assert "is not a site file: it is never replaced" in capsys.readouterr().err


@rows(("words", "what", "fix"), [
    (["site", "Tiger!"], "'Tiger!' cannot be the name of a site", "`recipe init site tiger`"),
    (["site", "lumi-g"], "'lumi-g' is a site that comes with recipe", "`extends: lumi-g`"),
    (["site", "tiger", "-o", "x.yaml"], "'x.yaml' is not the file of the site 'tiger'", "-o tiger.yaml`"),
    (["mnist", "--detect"], "--detect is for the file of a site", "`recipe init site --detect`"),
    (["mnist", "more"], "'more' is one argument too many", "`recipe init site more --detect`"),
])  # fmt: skip
def test_a_wrong_line_is_refused(
    words: list[str],
    what: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", *words]) == 2
    shown = capsys.readouterr().err
    assert what in shown
    assert fix in shown
    assert not list(tmp_path.iterdir())
