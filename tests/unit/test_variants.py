"""Variant wheels: what their properties ask for, and what a site's file says that it has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.made_elf import elf, fatbin, wheel
from support.rows import rows
from support.variant_wheels import GPUS, LEVELS, describe, variant_wheel

from builder.audit.content import AuditError
from builder.audit.distribution import describe_distribution, parse_distribution
from builder.audit.installed import read_folder
from builder.audit.judged_machine import Machine
from builder.audit.package_archives import read_wheel
from builder.audit.planned import AuditPlan, finish, judge_installed
from builder.audit.variants import find_unknown, find_unserved, list_properties, parse_variants, select_serving
from builder.audit.wheel_names import drop_label, find_label
from builder.parse.site import load_site
from builder.resolve.driver import make_machine

H100 = Machine(vendor="nvidia", targets=("sm_90",), majors=(11, 12), cuda="12.2", level="v4")
OPEN = replace(H100, cuda="")  # a driver whose own CUDA is not known
MI250 = Machine(vendor="amd", targets=("gfx90a",), majors=(6, 7), level="v3")
PVC = Machine(vendor="intel", targets=("pvc",))
CPU = Machine(vendor="cpu")
GRACE = Machine(vendor="nvidia", targets=("sm_90",), cuda="13.0", arch="aarch64")


@rows(
    ("file", "label"),
    [
        ("a-1.0-py3-none-any.whl", ""),
        ("a-1.0-py3-none-any-cu12.whl", "cu12"),
        ("a-1.0-1-py3-none-any.whl", ""),
        ("a-1.0-1b-py3-none-any-null.whl", "null"),
        ("a-1.0-py3-none-any-Not!.whl", ""),
        ("a-1.0-py3-none-any-of_more_than_16_.whl", "of_more_than_16_"),
        ("a-1.0-py3-none-any-of_more_than_16_x.whl", ""),
        ("a-1.0-cu12.tar.gz", ""),
        ("a.whl", ""),
    ],
)
def test_the_label_of_a_file_name(file: str, label: str) -> None:
    assert find_label(file) == label
    assert drop_label(file) == file.replace(f"-{label}.whl", ".whl")


LOWER, UPPER = "nvidia :: cuda_version_lower_bound", "nvidia :: cuda_version_upper_bound"


@rows(
    ("machine", "key", "values", "says"),
    [
        (H100, LOWER, "12.0", ""),
        (H100, LOWER, "12", ""),
        (H100, LOWER, "12.4", "wrong runtime major"),
        (H100, LOWER, "12.4 12.1", ""),
        (H100, UPPER, "13", ""),
        (H100, UPPER, "12.2", "wrong runtime major"),
        (H100, UPPER, "12.3", ""),
        (OPEN, LOWER, "12", ""),
        (OPEN, LOWER, "12.4", "unknown"),
        (OPEN, LOWER, "13.0", "wrong runtime major"),
        (OPEN, UPPER, "12.4", "unknown"),
        (OPEN, UPPER, "13", ""),
        (H100, LOWER, "x", "unknown"),
        (H100, "nvidia :: sm_arch", "80_real 90_real", ""),
        (H100, "nvidia :: sm_arch", "80_real", "no code for this GPU"),
        (H100, "nvidia :: sm_arch", "80_virtual", ""),
        (H100, "nvidia :: sm_arch", "100_virtual", "no code for this GPU"),
        (H100, "nvidia :: sm_arch", "90", "unknown"),
        (H100, "nvidia :: new_feature", "1", "unknown"),
        (H100, "amd :: gfx_arch", "gfx90a", "other vendor"),
        (CPU, "amd :: gfx_arch", "gfx90a", "CPU only"),
        (MI250, "amd :: gfx_arch", "gfx942 gfx90a", ""),
        (MI250, "amd :: gfx_arch", "gfx942", "no code for this GPU"),
        (MI250, "amd :: rocm_version", "6.4", ""),
        (MI250, "amd :: rocm_version", "5.7", "wrong runtime major"),
        (PVC, "intel :: device_ip", "12.60.7", ""),
        (PVC, "intel :: device_ip", "20.1.0", "no code for this GPU"),
        (H100, "x86_64 :: level", "v4", ""),
        (MI250, "x86_64 :: level", "v4", "other processor"),
        (PVC, "x86_64 :: level", "v2", ""),
        (PVC, "x86_64 :: level", "v3", "unknown"),
        (GRACE, "x86_64 :: level", "v1", "other processor"),
        (GRACE, "aarch64 :: version", "8.1a", "unknown"),
        (H100, "blas_lapack :: library", "mkl", "unknown"),
    ],
)
def test_what_a_machine_serves(machine: Machine, key: str, values: str, says: str) -> None:
    features = {key: tuple(values.split())}
    unserved = find_unserved(features, machine)
    assert ("unknown" if find_unknown(features, machine) else unserved.says if unserved else "") == says
    if unserved:
        assert unserved.reason.startswith(f"the variant is for {key} :: ")
    assert select_serving({"a": features, "null": {}}, machine) == (("null",) if says else ("a", "null"))


@rows(
    ("site", "label", "properties"),
    [
        ("mn5", "cu12", "cuda_version_lower_bound up to 12.2; |sm_arch :: 90_real|level up to v4"),
        ("lumi-g", "rocm", "gfx_arch :: gfx90a|rocm_version :: 6.*|level up to v3"),
        ("dawn", "", "device_ip :: 12.60.*"),
        ("lumi-c", "", "x86_64 :: level up to v3"),
        ("isambard-ai", "cu12", "sm_arch :: 90_real"),
    ],
)
def test_properties_follow_from_the_file_of_the_site(site: str, label: str, properties: str) -> None:
    machine = make_machine(load_site(site))
    listed = "; ".join((*list_properties(machine), ""))
    assert all(words in listed for words in properties.split("|")), listed
    serving = select_serving(parse_variants(describe(GPUS).encode()), machine)
    assert serving[:1] == ((label,) if label else ()) or site == "isambard-ai"


@rows(
    "text",
    [
        "", "[]", "{}", '{"variants": []}', '{"variants": {"TOO LOUD": {}}}', '{"variants": {"a": {"b": []}}}',
        '{"variants": {"a": {"b": {"c": []}}}}', '{"variants": {"a": {"b": {"c": "d"}}}}',
        '{"variants": {"a": {"b": {"c": [1]}}}}', '{"variants": {"a": {"b": {"c": ["\\u001b[31m"]}}}}',
        '{"variants": {"a": {"b\\n": {"c": ["d"]}}}}', "{" * 5000, '{"variants": {"a": []}}',
        '{"$schema": "https://schemas.example/variants/v2.0.0.json", "variants": {}}',
        json.dumps({"variants": {f"a{number}": {} for number in range(1001)}}),
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(AuditError):
        parse_variants(text.encode())


@rows(
    ("variants", "label", "site", "says", "wrong"),
    [
        (GPUS, "cu12", "mn5", "uses this GPU", False),
        (GPUS, "cu13", "mn5", "wrong runtime major", True),
        (GPUS, "sm120", "mn5", "no code for this GPU", True),
        (GPUS, "rocm", "mn5", "other vendor", True),
        (GPUS, "rocm", "lumi-g", "uses this GPU", False),
        (GPUS, "cu12", "lumi-c", "CPU only", False),
        (LEVELS, "v4", "lumi-c", "other processor", True),
        (LEVELS, "v4", "mn5", "CPU only", False),
        (LEVELS, "v4", "karolina", "CPU only", False),
    ],
)
def test_a_verdict_on_a_variant(
    variants: object, label: str, site: str, says: str, wrong: bool, tmp_path: Path
) -> None:
    known = GPUS if variants is GPUS else LEVELS
    found = read_wheel(variant_wheel(tmp_path, "a", label, known))
    plan = AuditPlan(site=site, machine=make_machine(load_site(site)))
    kept = [parse_distribution(json.loads(json.dumps(describe_distribution(one)))) for one in found.distributions]
    assert kept == [*found.distributions]
    (verdict,) = judge_installed(kept, plan)
    assert (verdict.says, verdict.wrong, verdict.variant) == (says, wrong, label), verdict


def test_what_an_image_has_is_judged_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    site = tmp_path / "image" / "lib" / "python3.12" / "site-packages"
    for name, label in (("good", "cu12"), ("bad", "cu13")):
        with zipfile.ZipFile(variant_wheel(tmp_path, name, label, GPUS)) as archive:
            archive.extractall(site)
    (site / "odd-1.0.dist-info").mkdir()
    (site / "odd-1.0.dist-info" / "variant.json").write_text("{}")
    found = read_folder(tmp_path / "image")
    assert [(one.name, one.python, one.variant) for one in found.distributions] == [
        ("bad", "3.12", "cu13"), ("good", "3.12", "cu12"),
    ]  # fmt: skip
    assert [one.path.rpartition("/")[2] for one in found.unread] == ["variant.json"]
    plan = AuditPlan(site="mn5", machine=make_machine(load_site("mn5")))
    draft = tmp_path / "x.sif.part1"
    draft.write_bytes(b"")
    message, _ = finish(plan, judge_installed(found.distributions, plan), draft)
    assert message.startswith("'bad' 1.0 is wrong for 'mn5': the variant is for nvidia :: cuda_version_lower_bound")
    assert "note: 'good' 1.0 is the variant 'cu12': the variant 'cu12' was built for it" in capsys.readouterr().out


def test_the_code_of_a_variant_is_judged_too(tmp_path: Path) -> None:
    code = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 80, "", ""))})
    files = {"a.so": code, "a-1.0.dist-info/variant.json": describe({"cu12": GPUS["cu12"]}).encode()}
    path = wheel(tmp_path / "a-1.0-py3-none-any-cu12.whl", files, tag="py3-none-any")
    plan = AuditPlan(site="mn5", machine=make_machine(load_site("mn5")))
    (verdict,) = judge_installed(read_wheel(path).distributions, plan)
    assert (verdict.says, verdict.wrong, verdict.file) == ("no code for this GPU", True, "a.so")


@rows(
    ("file", "label", "reason"),
    [
        ("a-1.0-py3-none-any-cu13.whl", "cu12", "does not describe the variant 'cu13' alone"),
        ("a-1.0-py3-none-any-cu13.whl", "", "its name says the variant 'cu13', and there is no variant.json"),
    ],
)
def test_a_name_that_the_content_denies_is_refused(file: str, label: str, reason: str, tmp_path: Path) -> None:
    path = variant_wheel(tmp_path, "a", label, GPUS).rename(tmp_path / file)
    with pytest.raises(AuditError, match=reason):
        read_wheel(path)
