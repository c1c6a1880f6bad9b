"""Recipes as found in the wild, and files that are no recipes at all."""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import ConfigError
from builder.model.recipe import Container, Recipe, Smoke
from builder.model.text import CONTROL
from builder.parse.recipe import load_recipe

WILD = Path(__file__).parent / "wild"
FILES = sorted(path for pattern in ("*.yml", "*.yaml", "*.in", "*.txt") for path in WILD.glob(pattern))
FOLDERS = [WILD / "marenostrum" / "requirements.txt", WILD / "include" / "environment.yml"]


def load(name: str) -> Recipe:
    return load_recipe(WILD / name)


def write(folder: Path, text: str | bytes, name: str = "environment.yml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def only_message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    (finding,) = caught.value.findings
    assert finding.fix
    return finding.message


@rows("path", [*FILES, *FOLDERS], ids=lambda path: path.name)
def test_wild_files_are_read(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.file == str(path)
    assert recipe.folder == str(path.parent)
    assert recipe.conda or recipe.pip


def test_lumi_environment() -> None:
    recipe = load("lumi_minimal_pytorch_rocm5.6.yml")
    assert (recipe.name, recipe.kind, recipe.channels) == ("minimal_pytorch", "conda", ("conda-forge",))
    assert {spec.name: spec.version for spec in recipe.conda}["python"] == "=3.12.3"
    assert [(item.name, item.specifier) for item in recipe.pip] == [
        ("pytorch-triton-rocm", "==2.2.0"),
        ("torch", "==2.2.2+rocm5.6"),
        ("torchaudio", "==2.2.2+rocm5.6"),
        ("torchvision", "==0.17.2+rocm5.6"),
    ]
    assert recipe.pip_options.extra_index_urls == ("https://download.pytorch.org/whl/rocm5.6/",)
    assert recipe.container == Container()


def test_tykky_environment_keeps_names_as_written_and_normal() -> None:
    recipe = load("tykky_pytorch_rocm.yml")
    jinja = next(spec for spec in recipe.conda if spec.name == "jinja2")
    assert (jinja.text, jinja.version, jinja.line) == ("Jinja2=3.1.5", "=3.1.5", 10)
    assert recipe.pip[0].line == 20
    assert recipe.lines["dependencies.pip"] == 18
    assert recipe.lines["dependencies.pip[1]"] == 20


def test_requirements_are_named_after_their_folder() -> None:
    recipe = load("marenostrum/requirements.txt")
    assert (recipe.name, recipe.kind, recipe.conda) == ("marenostrum", "pip", ())
    assert [item.text for item in recipe.pip if item.specifier] == ["deepspeed==0.13.1"]


def test_channels_in_specs() -> None:
    recipe = load("bio_module.yml")
    assert recipe.name == "bio_module"
    assert [(spec.channel, spec.name, spec.version, spec.build) for spec in recipe.conda] == [
        ("bioconda", "htslib", "=1.21", ""),
        ("bioconda", "samtools", "==1.21", "h50ea8bc_0"),
        ("conda-forge", "gzip", "=1.13", ""),
    ]


def test_version_ranges_and_comments() -> None:
    recipe = load("course_cuda.yaml")
    assert [(spec.name, spec.version) for spec in recipe.conda] == [
        ("python", ">=3.9,<3.12"),
        ("pytorch", ">=1.13,<2.2"),
        ("pytorch-cuda", "=11.8"),
        ("torchvision", ""),
        ("cudatoolkit", "=11.*"),
        ("fastcore", ">=1.5.29,<1.6"),
        ("mkl", "!=2024.1"),
        ("ipykernel", "~=6.0"),
        ("pip", ""),
    ]
    assert recipe.channels == ("pytorch", "nvidia", "fastchan", "nodefaults")


def test_included_files() -> None:
    recipe = load("include/environment.yml")
    assert [(item.name, item.extras, item.specifier, Path(item.file).name, item.line) for item in recipe.pip] == [
        ("numpy", (), "", "base.txt", 1),
        ("torch", ("opt-einsum",), ">=2.2,<2.7", "base.txt", 2),
        ("pytest", (), ">=8", "dev.txt", 4),
        ("", (), "", "", 10),
    ]
    assert recipe.pip[2].marker == 'python_version >= "3.9"'
    assert (recipe.pip[3].editable, recipe.pip[3].url, recipe.pip[3].text) == (True, ".", "-e .")
    assert [item.text for item in recipe.pip_options.constraints] == ["numpy<2", "setuptools==69.5.1"]
    assert recipe.pip_options.find_links == ("wheels",)
    assert recipe.variables == {"OMP_NUM_THREADS": "7", "PYTHON_VERSION": "3.10", "DEBUG": "no"}


def test_addresses_and_options() -> None:
    recipe = load("addresses.in")
    assert [(item.name, item.editable) for item in recipe.pip] == [
        ("torch", False),
        ("flash-attn", False),
        ("trl", False),
        ("accelerate", True),
        ("private-pkg", False),
        ("", False),
        ("uvicorn", False),
        ("scikit-learn", False),
    ]
    assert recipe.pip[2].text == "trl[peft] @ git+https://github.com/huggingface/trl.git@v0.8.6"
    assert recipe.pip[3].text == "-e git+https://github.com/huggingface/accelerate.git@main#egg=accelerate"
    assert recipe.pip[7].specifier == "!=1.5.0,>=1.4"
    options = recipe.pip_options
    assert (options.index_url, options.extra_index_urls) == (
        "https://example.org/simple",
        ("https://download.pytorch.org/whl/xpu",),
    )
    assert (options.no_binary, options.only_binary) == (("markupsafe",), ("numpy", "scipy"))
    assert (options.pre, options.prefer_binary, options.no_index, options.require_hashes) == (True, True, False, False)
    assert options.trusted_hosts == ("mirror.example.org:8080",)


def test_hashes() -> None:
    numpy, colorama = load("hashed.txt").pip
    assert numpy.hashes == ("sha256:" + "a" * 64, "sha256:" + "b" * 64)
    assert numpy.text == f"numpy==1.26.4 --hash=sha256:{'a' * 64} --hash=sha256:{'b' * 64}"
    assert (numpy.line, colorama.line) == (3, 7)
    assert colorama.marker == 'sys_platform == "win32"'


def test_container_section() -> None:
    recipe = load("container_full.yml")
    assert recipe.container == Container(
        gpu=("amd", "nvidia", "intel"),
        base="docker://nvcr.io/nvidia/pytorch:24.03-py3",
        python="base",
        system=("libgl1", "ffmpeg", "cmake=3.22.1-1ubuntu1"),
        files={"nested": "/opt/src", "container_full.yml": "/opt/environment.yml"},
        env={"HF_HOME": "/scratch/hf", "WORKERS": "7", "VERSION": "3.10", "ON": "on", "EMPTY": ""},
        run=("python -m pip install --no-build-isolation flash-attn==2.5.5", "cd /opt/src\nmake install\n"),
        labels={"org.opencontainers.image.authors": "me", "version": "1.10"},
        smoke=Smoke(imports=("torch", "numpy.linalg"), workloads=("mnist",)),
    )
    assert (recipe.lines["container.base"], recipe.lines["container.env.HF_HOME"]) == (11, 15)
    assert not recipe.wants("cpu")


def test_windows_file_is_the_same_recipe(tmp_path: Path) -> None:
    there = load("crlf_and_bom.yml")
    here = load_recipe(
        write(tmp_path, (WILD / "crlf_and_bom.yml").read_bytes().lstrip(b"\xef\xbb\xbf").replace(b"\r", b""))
    )
    assert (there.conda, there.pip, there.channels) == (here.conda, here.pip, here.channels)


def test_name_comes_from_the_file(tmp_path: Path) -> None:
    assert load("no_name.yml").name == "no_name"
    assert load_recipe(write(tmp_path, "dependencies: [numpy]", "my env (2).yml")).name == "my-env-2"


def test_empty_container_keys_mean_their_defaults(tmp_path: Path) -> None:
    text = "dependencies: [numpy]\nvariables:\ncontainer:\n  gpu:\n  base:\n  smoke:\n  env:\n"
    assert load_recipe(write(tmp_path, text)).container == Container()
    assert load_recipe(write(tmp_path, "dependencies: [numpy]\ncontainer:\n")).container == Container()


def test_a_recipe_with_a_container_may_need_no_package(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "container: {base: ./image.sif}\n"))
    assert (recipe.conda, recipe.pip, recipe.container.base) == ((), (), "./image.sif")


def test_repeats_that_add_nothing_are_joined(tmp_path: Path) -> None:
    text = "dependencies: [numpy, numpy=1.26, numpy=1.26, pip: [a, 'A[x]>=1', 'a[y]', 'b ; os_name==\"nt\"', b]]\n"
    recipe = load_recipe(write(tmp_path, text))
    assert [spec.text for spec in recipe.conda] == ["numpy=1.26"]
    assert [item.text for item in recipe.pip] == ["a[x,y]>=1", 'b ; os_name == "nt"', "b"]


def test_digest_is_of_everything_read(tmp_path: Path) -> None:
    path = write(tmp_path, "-r base.txt\n-c limits.txt\n", "requirements.txt")
    base = write(tmp_path, "numpy\n", "base.txt")
    limits = write(tmp_path, "numpy<2\n", "limits.txt")
    digests = {load_recipe(path).digest}
    base.write_text("numpy\n\n")
    digests.add(load_recipe(path).digest)
    limits.write_text("numpy<3\n")
    digests.add(load_recipe(path).digest)
    assert len(digests) == 3
    assert load_recipe(base).digest == hashlib.sha256(b"numpy\n\n").hexdigest()


def test_messages_name_the_file_as_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "numpy=1\n-r nowhere.txt\n", "requirements.txt")
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, shown="examples/requirements.txt")
    assert [str(finding.at) for finding in caught.value.findings] == [
        "examples/requirements.txt:1",
        "examples/requirements.txt:2",
    ]
    assert "'examples/nowhere.txt'" in caught.value.findings[1].message
    assert str(tmp_path) not in str(caught.value)


@rows(
    ("name", "data", "message"),
    [
        ("a.yml", b"", "the recipe is empty"),
        ("a.yml", b"name: m\xfcnchen\n", "the recipe is not UTF-8 text"),
        ("a.yml", "numpy\n".encode("utf-16"), "the recipe is UTF-16 text, as PowerShell writes it"),
        ("a.yml", b"name: a\x00b\n", "the recipe holds a NUL byte: it is not text"),
        ("a.yml", b"name: a\x01b\n", "the file holds a character that YAML does not allow"),
        ("a.txt", b"numpy\x00\n", "the recipe holds a NUL byte: it is not text"),
        ("a.yml", b"#" * (5 << 20), "larger than 4 MiB"),
        ("a.yml", b"#!/usr/bin/env run-singularity\nSIF_MAGIC", "is an image, not a recipe"),
        ("a.yml", b"\x7fELF\x02\x01\x01", "is a compiled program, not a recipe"),
        ("a.txt", b"PK\x03\x04", "is a zip archive, not a recipe"),
        ("a.txt", b"\x1f\x8b\x08", "is a compressed file, not a recipe"),
        ("a.txt", b"numpy \x1b[2J\n", r"'numpy \x1b[2J' holds a control character"),
        ("a.txt", b"a" * 60_000, "is longer than 50000 characters"),
        ("a.txt", b"a" * 3_000, "is longer than 2000 characters"),
        ("a.txt", b"a ; " + b"(" * 1_900, "is not understood"),
        ("a.yml", b"dependencies: [" + b"a" * 600 + b"]", "is longer than 500 characters"),
        ("a.yml", b'dependencies: ["\\ud800"]', "this is not YAML"),
    ],
)
def test_not_text(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    assert message in only_message(write(tmp_path, data, name))


def test_a_recipe_has_a_limit_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of the program: tests/commands/test_bombs.py."""
    monkeypatch.setattr("builder.parse.requirements_txt.COUNT_LIMIT", 200)
    assert load_recipe(write(tmp_path, "a\n" * 200, "a.txt")).pip
    assert "more than 200 lines of requirements" in only_message(write(tmp_path, "a\n" * 201, "b.txt"))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert only_message(tmp_path / "nowhere.yml").endswith("does not exist")
    assert only_message(tmp_path).endswith("is a folder")
    assert only_message(Path("/dev/zero")).endswith("is not a regular file")
    for name in ("pipe.yml", "pipe.txt", "pipe.toml", "pylock.toml", "conda-lock.yml"):
        os.mkfifo(tmp_path / name)
        assert only_message(tmp_path / name).endswith("is not a regular file")
    for name in ("pipe", "pipe.lock", "pixi.lock", "uv.lock", "Dockerfile"):  # nothing waits for a writer
        os.mkfifo(tmp_path / name)
        assert only_message(tmp_path / name)
    assert "cannot be read" in only_message(tmp_path / ("x" * 300 + ".yml"))
    assert "cannot be read" in only_message(Path("a\0b.yml"))
    (tmp_path / "loop.yml").symlink_to("loop.yml")
    assert "loop.yml" in only_message(tmp_path / "loop.yml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path, "dependencies: [numpy]")
    path.chmod(0)
    assert only_message(path).endswith("cannot be read: permission denied")


def test_whatever_is_read_fits_one_line_of_an_argument_list() -> None:
    for path in [*FILES, *FOLDERS]:
        recipe = load_recipe(path)
        texts = [spec.text for spec in recipe.conda] + [item.text for item in recipe.pip] + list(recipe.channels)
        for text in texts:
            assert not set(text) & set("$`\\{}\n\t|&")


TOKENS = (
    b"'", b'"', b"\t", b"- ", b": ", b"[", b"]", b"{", b"&a ", b"*a", b"!!x ", b"\xff", b"\0", b";", b"$(id)",
    b"=", b"==", b"::", b"\\", b"\n", b"#", b"|\n", b">", b"@", b"-r ", b"--", b" <", b"\r", b"\xc2\x85",
)  # fmt: skip


def _mutated(data: bytes, dice: random.Random) -> bytes:
    """One or two small changes: a byte, a line, a piece from elsewhere, a nasty token."""
    for _ in range(dice.randint(1, 2)):
        at, end = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
        kind = dice.randrange(9)
        if kind < 3:
            data = data[:at] + dice.choice(TOKENS) + data[at:]
        elif kind < 5:
            data = data[:at] + data[min(end, at + 12) :]
        elif kind < 7:
            data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        elif kind == 7:
            data = data[:end] + data[at : at + 40] + data[end:]
        else:
            lines = data.splitlines(keepends=True)
            dice.shuffle(lines)
            data = b"".join(lines)
    return data


def _outcome(path: Path) -> str:
    """Load a damaged file and check what comes of it; anything but a recipe or findings fails the test."""
    try:
        recipe = load_recipe(path, shown="fuzzed")
    except ConfigError as error:
        texts = [part for finding in error.findings for part in (finding.message, finding.fix, str(finding.at))]
        sound = bool(texts) and all(text and not CONTROL.search(text) for text in texts)
    else:
        texts = [*(spec.text for spec in recipe.conda), *(item.text for item in recipe.pip)]
        sound = not any(CONTROL.search(text) or set(text) & set("$`\\{}") for text in texts)
        return "recipe" if sound else f"unsound recipe: {texts}"
    return "findings" if sound else f"unsound findings: {texts}"


@pytest.mark.property
def test_a_damaged_file_gives_a_recipe_or_findings(tmp_path: Path) -> None:
    dice = random.Random(20260101)
    sources = [(path.suffix, path.read_bytes()) for path in FILES]
    outcomes = {"recipe": 0, "findings": 0}
    started = time.process_time()
    for number in range(1500):
        suffix, data = sources[number % len(sources)]
        path = write(tmp_path, _mutated(data, dice), f"damaged{suffix}")
        outcomes[_outcome(path)] += 1
    assert min(outcomes.values()) > 100, outcomes
    assert time.process_time() - started < 10  # seconds; 1 on an ordinary machine
