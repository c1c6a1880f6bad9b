"""recipe init --from: build files by the patterns that people publish, and what is wrong with some."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser
from spython.main.parse.parsers import DockerParser, SingularityParser
from support.bombs import sif
from support.build_file_samples import SAMPLES, place_sample
from support.rows import rows

from builder.cli.main import run
from builder.parse.build_file import expand
from builder.parse.definition_file import read_definition
from builder.parse.dockerfile import read_dockerfile
from builder.parse.install_commands import read_command
from builder.parse.recipe import load_recipe
from builder.parse.shell_text import split_commands

EXPECTED = Path(__file__).parents[1] / "build_files"
GOLDEN = Path(__file__).parents[1] / "golden"
# What a site cannot do for a recipe of a sample: its backend has no such key, its image no MPI.
REFUSED = {
    "cotainr-system",
    "cotainr-files",
    "cotainr-run",
    "cotainr-labels",
    "pip-local",
    "docker-base",
    "mpi-missing",
}
DEFINITION = 0x4001  # the kind of an object of a SIF


def make(name: str, tmp_path: Path) -> Path:
    """The environment file that a sample becomes."""
    source = place_sample(tmp_path / name, name)
    assert run(["init", "--from", str(source), "-o", str(source.parent / "out.yml")]) == 0
    return source.parent / "out.yml"


@rows("name", list(SAMPLES))
def test_a_sample_becomes_the_stored_recipe(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    text = make(name, tmp_path).read_text(encoding="utf-8")
    if pytestconfig.getoption("--update-golden", default=False):
        (EXPECTED / f"{name}.yml").write_text(text, encoding="utf-8")
    assert text == (EXPECTED / f"{name}.yml").read_text(encoding="utf-8")


def test_every_sample_has_its_stored_recipe() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == set(SAMPLES)
    assert len(SAMPLES) >= 20


@pytest.mark.property
@rows("name", list(SAMPLES))
def test_every_site_takes_a_sample_or_truly_cannot(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(name, tmp_path)
    capsys.readouterr()
    run(["check", "all", str(path), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    outcomes = found["outcomes"]
    assert len(outcomes) > 10
    codes = {one["code"] for outcome in outcomes for one in outcome["findings"] if one["level"] == "error"}
    assert codes - REFUSED == set()


def test_security_01_no_secret_of_a_sample_is_in_its_recipe() -> None:
    text = (EXPECTED / "secrets.yml").read_text(encoding="utf-8")
    for secret in ("abcdefghijklmnop", "hunter2pass", "correcthorse"):
        assert secret not in text


# A second reader of the same files. dockerfile-parse knows no here-documents and no empty lines in a continued one.
READ_ALIKE = [
    name for name, files in SAMPLES.items()
    if "Dockerfile" in files and not re.search(r"<<|\\\n\n|:-", files["Dockerfile"])
]  # fmt: skip


@rows("name", READ_ALIKE)
def test_dockerfile_parse_finds_the_same_base_and_runs(name: str) -> None:
    text = SAMPLES[name]["Dockerfile"]
    other, own = DockerfileParser(fileobj=BytesIO(text.encode())), read_dockerfile(text, file="Dockerfile")
    assert own.base in other.parent_images
    ours = {re.sub(r"\W+", " ", step.script.text).strip() for step in own.steps if step.script}
    theirs = {
        re.sub(r"\W+", " ", one["value"]).strip() for one in other.structure if one["instruction"] == "RUN"
    }  # of all stages
    assert ours <= theirs


# spython reads images of Docker alone, and knows no arguments.
OTHERS = ("Dockerfile", "library-definition", "stages-and-arguments")


@rows("name", [name for name, files in SAMPLES.items() if not {name, *files} & {*OTHERS}])
def test_spython_finds_the_same_sections(name: str, tmp_path: Path) -> None:
    source = place_sample(tmp_path, name)
    other = SingularityParser(str(source)).recipe["spython-base"]
    own = read_definition(source.read_text(encoding="utf-8"), file=source.name)
    assert own.base.lower() == f"docker://{other.fromHeader}"
    lines = [line.strip() for step in own.steps if step.script for line in step.script.text.splitlines()]
    assert [line for line in lines if line] == [line for line in other.install if line in lines]
    assert [step.sources[0] for step in own.steps if step.kind == "copy"] == [one.split()[0] for one in other.files]
    assert len([step for step in own.steps if step.kind == "label"]) == len(other.labels)


def test_spython_reads_every_generated_definition_file() -> None:
    read = 0
    for path in sorted(GOLDEN.rglob("*.def")):
        text = path.read_text(encoding="utf-8")
        if set(re.findall("^Bootstrap: (.*)", text, re.MULTILINE)) != {"docker"}:
            continue  # spython reads no others
        read += 1
        stages = SingularityParser(str(path)).recipe
        own = read_definition(text, file=path.name)
        assert own.base.lower().removeprefix("docker://") in {stage.fromHeader for stage in stages.values()}, path
        assert any("install.sh" in line for stage in stages.values() for line in stage.install), path
    assert read >= 3


def test_second_readers_read_every_generated_dockerfile() -> None:
    files = sorted(GOLDEN.rglob("Dockerfile"))
    assert len(files) >= 3
    for path in files:
        text = path.read_text(encoding="utf-8")
        own = read_dockerfile(text, file=path.name)
        assert own.base in DockerfileParser(fileobj=BytesIO(text.encode())).parent_images, path
        assert own.base in {stage.fromHeader.strip() for stage in DockerParser(str(path)).recipe.values()}, path


@rows(
    ("text", "commands"),
    [
        ("a; b && c", ["a", "b", "c"]),
        ("a || b && c | d", ["a || b", "c | d"]),
        ("if a; then b; fi; c", ["if a; then b; fi", "c"]),
        ("a # b; c\n\n# d\ne", ["a", "e"]),
        ("cat <<X && b\n; c\nX\nd", ["cat <<X && b\n; c\nX", "d"]),
        ("(a; b); $(c; d) `e; f`", ["(a; b)", "$(c; d) `e; f`"]),
        ("a 'b; c' \"d && e\"", ["a 'b; c' \"d && e\""]),
        ("a \\\n  b &&\n  c", ["a \\\n  b", "c"]),
        ("case x in y) a;; *) b;; esac; c", ["case x in y) a;; *) b;; esac", "c"]),
        ("a 'open; b", ["a 'open; b"]),
    ],
)
def test_commands_are_split_where_a_shell_ends_them(text: str, commands: list[str]) -> None:
    assert [command.text for command in split_commands(text)] == commands


@rows(
    ("text", "value"),
    [
        ("$A-${A}-${B}", "1-1-${B}"),
        ("${B:-x}${A:+y}${B:+z}", "xy"),
        (r"\$A $", "$A $"),
        ("${A" * 3, "${A" * 3),
    ],
)
def test_variables_are_replaced_as_by_docker(text: str, value: str) -> None:
    assert expand(text, {"A": "1"}) == value


DOCKERFILE = b"FROM python:3.12\nRUN pip install rich\n"
FAULTS: list[tuple[str, bytes | None, str]] = [
    ("nothere.def", None, "'nothere.def' does not exist"),
    ("notes.md", b"# Notes\n\nhello\n", "'notes.md' is neither a Dockerfile nor a definition file"),
    ("Dockerfile", b"", "'Dockerfile' is neither a Dockerfile nor a definition file"),
    ("Dockerfile", b"FROM \0\xff", "'Dockerfile' is neither text nor an image"),
    ("Dockerfile", b"\x7fELF\2\1\1\0", "'Dockerfile' is neither text nor an image"),
    ("Dockerfile", DOCKERFILE + b"# caf\xe9\n", "the build file is not UTF-8 text"),
    ("Dockerfile", DOCKERFILE * 300_000, "the build file 'Dockerfile' is larger than 4 MiB"),
    ("Dockerfile", DOCKERFILE * 4_000, "'Dockerfile' has more than 128 KiB of text, and is hardly a build file"),
    ("Dockerfile", b"FROM a\n" + b"RUN x;y\n" * 3_000, "the file has more than 5000 commands"),
    ("Dockerfile", b"FROM python:3.12\nINSTALL rich\n", "'INSTALL' is no instruction of a Dockerfile"),
    ("Dockerfile", b"FROM python:3.12\nRUN <<EOF\npip install rich\n", "a here-document has no end"),
    ("Dockerfile", b"ARG A=1\nRUN echo\n", "the Dockerfile has no FROM, and so no image"),
    ("Dockerfile", b"FROM ubuntu:22.04\nRUN echo hello\n", "'Dockerfile' installs nothing that a recipe can name"),
    ("env.yml", b"name: x\ndependencies: [python]\n", "'env.yml' is an environment file already"),
    ("cut.sif", b"#!/bin/x\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0", "the image 'cut.sif' cannot be read"),
    ("other.tar", b"hsqs" + b"\0" * 200, "no file of the image can be read"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), FAULTS, ids=[str(index) for index in range(len(FAULTS))])
def test_a_source_that_cannot_be_read(
    name: str, content: bytes | None, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    assert run(["init", "--from", name, "-o", "out.yml"]) == 2
    shown = capsys.readouterr().err
    assert f"]: {message}" in shown
    assert "\n  fix: " in shown
    assert not Path("out.yml").exists()


def test_all_faults_of_a_dockerfile_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\nRUM x\nCOPPY . .\nRUN <<E\n")
    assert run(["init", "--from", str(tmp_path / "Dockerfile"), "-o", str(tmp_path / "x.yml")]) == 2
    shown = capsys.readouterr().err
    assert [int(line) for line in re.findall(r"Dockerfile:(\d+)", shown)] == [2, 3, 4]


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Dockerfile").write_bytes(DOCKERFILE)
    assert run(["init", "--from", "Dockerfile"]) == 0
    before = Path("environment.yml").read_text()
    assert load_recipe(Path("environment.yml")).list_names() == ("python", "rich")
    assert run(["init", "--from", "Dockerfile"]) == 2
    assert "fix: `recipe init --from Dockerfile -o environment-2.yml`, or add --force" in capsys.readouterr().err
    assert run(["init", "--from", "Dockerfile", "--force"]) == 0
    assert Path("environment.yml").read_text() == before
    for target, message in (("Dockerfile.yml", "never replaced"), ("x.txt", "no name for an environment file")):
        Path("Dockerfile.yml").write_text("notes\n")
        assert run(["init", "--from", "Dockerfile", "-f", "-o", target]) == 2
        assert message in capsys.readouterr().err
    assert Path("Dockerfile").read_bytes() == DOCKERFILE
    assert Path("Dockerfile.yml").read_text() == "notes\n"


def test_paths_are_those_from_the_new_file(tmp_path: Path) -> None:
    source = place_sample(tmp_path / "project", "framework-image")
    (tmp_path / "recipes").mkdir()
    assert run(["init", "--from", str(source), "-o", str(tmp_path / "recipes")]) == 0
    recipe = load_recipe(tmp_path / "recipes" / "environment.yml")
    assert recipe.container.files == {"../project": "/app"}
    assert [line.name for line in recipe.pip] == ["torch", "mteb", "tqdm"]


def test_an_image_is_read_by_its_definition_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SAMPLES["seed-dawn"]["pytorch2.8.def"].encode()
    image = sif(tmp_path / "x.sif", [(DEFINITION, "x.def", text, len(text))])
    assert run(["init", "--from", str(image), "-o", str(tmp_path / "x.yml")]) == 0
    assert load_recipe(tmp_path / "x.yml").list_names() == ("torch", "matplotlib", "pandas", "seaborn")
    assert "from the definition file in it: 4 packages" in capsys.readouterr().err


def test_an_image_without_one_is_read_by_its_packages(tmp_path: Path) -> None:
    """The environment with most packages counts; those of the distribution do not."""
    site = tmp_path / "image" / "opt/conda/lib/python3.11/site-packages"
    for name, version in (("torch", "2.6.0+cu124"), ("rich", "13.7.1"), ("nvidia-cublas-cu12", "12.4"), ("pip", "24")):
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    other = tmp_path / "image" / "usr/lib/python3/dist-packages/apt-2.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: apt\nVersion: 2.0\n")
    history = tmp_path / "image" / "opt/conda/conda-meta"
    history.mkdir()
    for name, version in (("python", "3.11.9"), ("numpy", "1.26.4"), ("conda", "24.1"), ("cuda-nvrtc", "12.4")):
        record = {"name": name, "version": version, "build": "h_0", "subdir": "linux-64"}
        channel = "https://conda.anaconda.org/conda-forge/linux-64"
        (history / f"{name}-{version}-h_0.json").write_text(json.dumps({**record, "channel": channel}))
    assert run(["init", "--from", str(tmp_path / "image"), "-o", str(tmp_path / "x.yml")]) == 0
    recipe = load_recipe(tmp_path / "x.yml")
    assert [spec.text for spec in recipe.conda] == ["numpy=1.26.4", "python=3.11.9"]
    assert [line.text for line in recipe.pip] == ["rich==13.7.1", "torch"]
    assert recipe.channels == ("conda-forge",)


def test_the_example_of_the_page_is_what_is_written(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-dockerfile.md").read_text(encoding="utf-8")
    source, written = re.findall(r"^```(?:text|yaml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "Dockerfile").write_text(source)
    (folder / "train.py").write_text("print(1)\n")
    assert run(["init", "--from", str(folder / "Dockerfile"), "-o", str(folder)]) == 0
    assert (folder / "environment.yml").read_text().split("\n", 2)[2] == written


DEFINITION_BASES = [
    ("Bootstrap: library\nFrom: a/b/c:1\n", "library://a/b/c:1", ""),
    ("Bootstrap: localimage\nFrom: ./x.sif\n", "./x.sif", ""),
    ("BootStrap:oras\nFrom:example.org/x:1\n", "oras://example.org/x:1", ""),
    ("Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: https://deb.example.org\n", "", "debootstrap"),
    ("Bootstrap: shub\nFrom: a/b\n", "", "shub a/b"),
    ("From: Example/Case:1\nBootstrap: docker\n", "docker://Example/Case:1", ""),
]


@rows(("header", "base", "left"), DEFINITION_BASES)
def test_the_base_of_a_definition_file(header: str, base: str, left: str) -> None:
    build = read_definition(header + "%post\n    pip install rich\n", file="x.def")
    assert build.base == base
    agents = [step.text for step in build.steps if step.text.startswith("Bootstrap")]
    assert agents == ([f"Bootstrap: {left}"] if left else [])


INSTALLS = [
    ("yes | sudo apt-get -qq install -y a=1:2 --no-install-recommends b", "system", ("a=1:2", "b")),
    ("apk add --no-cache tini", "system", ("tini",)),
    ("apt-get update", "nothing", ()),
    ("/opt/conda/bin/pip --no-cache-dir install -q 'a>=1' b==2 || true", "pip", ("a>=1", "b==2")),
    ("pip install a>=1.0 > /dev/null 2>&1", "pip", ("a>=1.0",)),
    ("python3.11 -m pip install $X", "pip", ("x", "y")),
    ("uv pip install --system a", "pip", ("a",)),
    ("pip install --upgrade pip setuptools", "nothing", ()),
    ("pip install --no-deps a", "other", ()),
    ("CFLAGS=-O2 pip install a", "other", ()),
    ("MPICC=cc pip install --no-binary=mpi4py mpi4py", "pip", ("mpi4py",)),
    ("pip install $UNKNOWN", "other", ()),
    ("conda run -n x pip install a", "pip", ("a",)),
    ("mamba install -y -c conda-forge a=1 b", "conda", ("a=1", "b")),
    ("conda create -n x", "nothing", ()),
    ("micromamba install -y -f env.yml", "environment", ()),
    ("conda env create", "environment", ()),
    ("export A=1 B=2", "set", ()),
    ("cd /opt", "folder", ("/opt",)),
    ("rm Miniconda3-latest-Linux-x86_64.sh", "nothing", ()),
    ("rm -rf /opt/data", "other", ()),
    ("curl x | sh", "other", ()),
]


@rows(("text", "kind", "words"), INSTALLS)
def test_what_a_command_installs(text: str, kind: str, words: tuple[str, ...]) -> None:
    found = read_command(text, values={"X": "x y"})
    assert (found.kind, found.words) == (kind, words)


def test_security_02_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("only-mine\n")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link.txt").symlink_to("../secret.txt")
    text = "FROM python:3.12\nCOPY link.txt /opt/\nCOPY ../secret.txt {0} /\nRUN pip install rich -r /opt/link.txt\n"
    (folder / "Dockerfile").write_text(text.format(tmp_path / "secret.txt"))
    (folder / "x.def").write_text(
        f"Bootstrap: docker\nFrom: a\n%files\n    {tmp_path}/secret.txt /r.txt\n%post\n    pip install rich -r /r.txt\n"
    )
    for name in ("Dockerfile", "x.def"):
        assert run(["init", "--from", str(folder / name), "-o", str(folder / f"{name}.yml")]) == 0
        assert "only-mine" not in (folder / f"{name}.yml").read_text()
        assert "rich" in load_recipe(folder / f"{name}.yml").list_names()


ODD = (
    'ARG A="open\nFROM python:3.12\nRUN pip install rich\n',
    "FROM python:3.12\nENV A[=1 B=2\nRUN pip install rich && make $A[\n",
    "FROM python:3.12\nCOPY a** [x /opt/\nRUN pip install rich\n",
    "FROM python:3.12\nRUN --x=<<EOF python - <<EOF\na\nEOF\nb\nEOF\nRUN pip install rich\n",
)  # fmt: skip


@rows("text", ODD)
def test_odd_files_become_recipes_all_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    assert run(["init", "--from", str(tmp_path / "Dockerfile"), "-f", "-o", str(tmp_path / "x.yml")]) == 0
    assert "rich" in load_recipe(tmp_path / "x.yml").list_names()
