"""Definition files at a site without user namespaces and fakeroot: what PRoot can do, and what is said of the rest."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.compile.compile import compile_plan
from builder.compile.render import read_template
from builder.model.finding import Finding, UnsupportedError
from builder.model.plan import Plan
from builder.model.site import Site
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


def planned(folder: Path, container: str, *, site: Site, backend: str = "apptainer") -> Plan:
    path = folder / "environment.yml"
    text = f"name: x\nchannels: [conda-forge]\ndependencies: [python=3.12]\ncontainer: {container}\n"
    path.write_text(text, encoding="utf-8")
    return compile_plan(resolve(load_recipe(path, shown=path.name), site, context=Context(backend=backend)))


def refused(folder: Path, container: str, *, site: Site, backend: str = "apptainer") -> tuple[Finding, ...]:
    with pytest.raises(UnsupportedError) as caught:
        planned(folder, container, site=site, backend=backend)
    return caught.value.findings


def script(plan: Plan) -> str:
    return next(file.text for file in plan.files if file.path == "1-build-image.sh")


@rows("site", ["lumi-g", "lumi-c"])
def test_lumi_serves_all_of_container_in_proot(site: str, tmp_path: Path) -> None:
    container = "{system: [cowsay], run: ['true'], labels: {a: b}}"
    plan = planned(tmp_path, container, site=load_site(site))
    text = script(plan)
    assert text.index("use_module load LUMI\nuse_module load systools\n") < text.index("\nneed_proot\n")
    assert text.index("need_proot") < text.index('"$runtime" build')
    assert "--fakeroot" not in text
    assert [finding.code for finding in plan.findings] == ["apptainer-users"]
    definition = next(file.text for file in plan.files if file.path.endswith(".def"))
    assert not re.search(r"^%(pre|setup)", definition, re.MULTILINE)
    assert set(re.findall(r"^Bootstrap: (.*)$", definition, re.MULTILINE)) <= {"docker", "localimage"}


def test_other_sites_build_without_proot(tmp_path: Path) -> None:
    plan = planned(tmp_path, "{system: [cowsay], run: [mount /x]}", site=load_site("frontier"))
    assert "need_proot" not in script(plan)
    assert not [finding.code for finding in plan.findings if finding.code.startswith("apptainer")]


@rows("command", ["mount -t tmpfs none /mnt", "cd / && setcap x y", "/usr/sbin/sysctl -p", "true; mknod /x b 7 0"])
def test_a_command_that_needs_rights_is_a_warning(command: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, f"{{run: ['true', '{command}']}}", site=load_site("lumi-g"))
    found = next(finding for finding in plan.findings if finding.code == "apptainer-proot")
    assert found.at is not None
    assert (found.level, found.at.key) == ("warning", "container.run[1]")


@rows("command", ["mountain", "echo amount", "pip install mount-tools", "cat /etc/sysctl.conf", "./remount.sh"])
def test_a_word_of_a_command_that_is_none_of_them(command: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, f"{{run: ['{command}']}}", site=load_site("lumi-g"))
    assert plan.findings == ()


def test_a_site_where_no_user_can_build_one(tmp_path: Path) -> None:
    lumi = load_site("lumi-g")
    without = replace(lumi, build=replace(lumi.build, proot="no"))
    found = refused(tmp_path, "{}", site=without)
    assert [(finding.code, finding.fix) for finding in found] == [
        ("apptainer-rootless", "build with --backend cotainr or --backend tykky or --backend layers")
    ]
    unknown = replace(lumi, build=replace(lumi.build, proot="unknown"))
    assert "need_proot" not in script(planned(tmp_path, "{}", site=unknown))


@rows("backend", ["cotainr", "tykky", "layers"])
def test_the_other_backends_name_this_one(backend: str, tmp_path: Path) -> None:
    found = refused(tmp_path, "{system: [cowsay]}", site=load_site("lumi-g"), backend=backend)
    (error,) = [finding for finding in found if finding.level == "error"]
    assert error.fix.startswith("build with --backend apptainer")


def test_a_site_that_builds_otherwise_is_not_led_there(tmp_path: Path) -> None:
    lumi = load_site("lumi-g")
    without = replace(lumi, build=replace(lumi.build, backends=("layers",)))
    (error,) = [one for one in refused(tmp_path, "{run: ['true']}", site=without, backend="") if one.level == "error"]
    assert error.fix == "build such an image on another machine, name it in container.base, and remove this"


def test_the_programs_that_add_users_are_put_back() -> None:
    text = read_template("install.sh")
    system = text[text.index("\nsystem() {") :]
    assert system.index("replace_accounts") < system.index("install_system") < system.index("restore_accounts")
