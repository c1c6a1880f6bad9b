"""Small files that ask for much memory or time: what is refused is so within bounds, measured of the whole command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import bombs
from support.measured import MEMORY, Measured, layering, recipe, run_call


def commands(path: Path, folder: Path) -> list[Measured]:
    """Every command that reads an image or an archive from its file alone."""
    runs = [recipe("inspect", path, folder=folder)]
    if path.suffix == ".tar":
        runs.append(layering("time", path, folder=folder))
        runs.append(layering("labels", path, folder / "labels.json", "--time", "1700000000", folder=folder))
    else:
        runs.append(recipe("inspect", "--integrity", path, folder=folder))
    return runs


@pytest.mark.parametrize("name", [*bombs.ARCHIVES, *bombs.IMAGES])
def test_security_15_a_bomb_takes_little_memory_and_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    {**bombs.ARCHIVES, **bombs.IMAGES}[name](path)
    for run in commands(path, tmp_path):
        run.check()


@pytest.mark.parametrize("name", ["status.tar", "layers.sif", "dpkg.sqfs"])
def test_security_15_a_comparison_reads_two_in_the_same_bounds(name: str, tmp_path: Path) -> None:
    """The reader is that of `recipe inspect`: one file of each kind."""
    path = tmp_path / name
    {**bombs.ARCHIVES, **bombs.IMAGES}[name](path)
    recipe("diff", path, path, folder=tmp_path).check(files=2)


@pytest.mark.parametrize("name", ["pax.tar", "members.tar", "skip-xz.tar", "status.tar", "sbom.sif", "dpkg.sqfs"])
@pytest.mark.parametrize("keep", [0.03, 0.5, 0.97])
def test_security_15_so_does_the_first_part_of_one(name: str, keep: float, tmp_path: Path) -> None:
    path = tmp_path / name
    {**bombs.ARCHIVES, **bombs.IMAGES}[name](path)
    run = recipe("inspect", bombs.truncated(path, keep=keep), folder=tmp_path)
    run.check()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_security_15_a_sound_archive_is_read_compressed_or_not(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "sound.tar"
    status = b"Package: libc6\nStatus: install ok installed\nVersion: 2.36\n"
    path.write_bytes(bombs.docker({"a.tar": bombs.archive({"var/lib/dpkg/status": status}, "w:gz")}, mode))
    run = recipe("inspect", "--json", path, folder=tmp_path)
    found = json.loads(run.output)
    assert [(one["name"], one["version"]) for one in found["packages"]] == [("libc6", "2.36")]
    assert (found["labels"], found["arch"], found["unknown"]) == ({"a": "b"}, "amd64", [])


YAML = {
    "many-values": "dependencies:\n" + "- a\n" * 700_000,
    "many-flow": "dependencies: [" + "a," * 1_500_000 + "]\n",
    "deep-flow": "dependencies: " + "[" * 100_000 + "]" * 100_000,
    "deep-block": "".join(" " * row + "a:\n" for row in range(2500)),
    "directives": "".join(f"%TAG !a{row}! tag:x\n" for row in range(150_000)) + "--- a\n",
    "anchors": "a: [" + ",".join(f"&x{row} y" for row in range(300_000)) + "]\n",
    "aliases": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{row + 1}: &a{row + 1} [{','.join([f'*a{row}'] * 9)}]\n" for row in range(9)),
    "one-scalar": "dependencies: ['" + "a" * 4_000_000 + "']\n",
    "variables": "dependencies: [python]\nvariables: {A: '" + "x" * 3_900_000 + "'}\n",
    "keys": "dependencies: [python]\nvariables:\n" + "".join(f"  A{row}: b\n" for row in range(250_000)),
    "faults": "dependencies:\n" + "".join(f"- 'a b c {row}'\n" for row in range(19_000)),
    "number": "dependencies: [python]\ncontainer: {smoke: {workloads: " + "9" * 5000 + "}}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("kind", ["recipe", "site", "lock"])
def test_security_22_a_yaml_file_of_4_mib_is_refused_at_once(name: str, kind: str, tmp_path: Path) -> None:
    text = YAML[name][: 4 * bombs.MIB]
    env = tmp_path / "env.yml"
    env.write_text("dependencies: [python]\n" if kind != "recipe" else text)
    if kind == "site":
        (tmp_path / "site.yaml").write_text(text)
        run = recipe("check", "./site.yaml", env, folder=tmp_path)
    elif kind == "lock":
        (tmp_path / "env.lock.yml").write_text(text)
        run = recipe("diff", env, env, "--site", "local", folder=tmp_path)
    else:
        run = recipe("check", "local", env, folder=tmp_path)
    run.check()
    assert run.code in (0, 2)
    assert run.code == 2 or kind == "recipe"


def test_security_22_a_variable_that_no_program_starts_with_is_refused(tmp_path: Path) -> None:
    env = tmp_path / "env.yml"
    for section in ("variables: {A: '%s'}", "container: {env: {A: '%s'}}"):
        env.write_text("dependencies: [python]\n" + section % ("x" * (128 * 1024 - 3)))
        assert recipe("check", "local", env, folder=tmp_path).code == 0
        env.write_text("dependencies: [python]\n" + section % ("x" * (128 * 1024 - 2)))
        run = recipe("check", "local", env, folder=tmp_path)
        assert run.code == 2
        assert "takes more than 128 KiB, and no program can be started so" in run.output


@pytest.mark.parametrize("lines", ["a\n", "a==1\n", "-r x.txt\n", "# a\n", "a \\\n", "--hash=sha256:a\n", "a;b\n"])
def test_security_22_requirements_of_4_mib(lines: str, tmp_path: Path) -> None:
    env = tmp_path / "env.txt"
    env.write_text(lines * (4 * bombs.MIB // len(lines)))
    run = recipe("check", "local", env, folder=tmp_path)
    run.check()
    assert run.code == 2
    assert lines != "a\n" or "more than 20000 lines of requirements" in run.output


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("env.yml", ("check", "local", "PATH")), ("env.txt", ("check", "local", "PATH")),
        ("site.yaml", ("check", "PATH", "sound.yml")), ("env.lock.yml", ("diff", "PATH", "PATH", "--site", "local")),
        ("image.sif", ("inspect", "PATH")), ("image.sif", ("inspect", "--integrity", "PATH")),
        ("image.tar", ("convert", "local", "PATH")), ("image.sif", ("smoke", "local", "PATH")),
        ("image.sif", ("run", "local", "PATH", "--", "true")), ("image.sif", ("diff", "PATH", "PATH")),
        ("report.json", ("report", "PATH")),
    ],
)  # fmt: skip
def test_security_15_what_is_no_file_is_refused(name: str, words: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    (tmp_path / "sound.yml").write_text("dependencies: [python]\n")
    bombs.special(tmp_path, kind).rename(tmp_path / name)
    run = recipe(*[str(tmp_path / name) if word == "PATH" else word for word in words], folder=tmp_path)
    run.check()
    assert run.code in (2, 3, 4) or (kind == "folder" and name != "image.tar"), run.output


def test_security_15_a_recipe_of_a_gigabyte(tmp_path: Path) -> None:
    for name in ("env.yml", "env.txt"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
        run = recipe("check", "local", tmp_path / name, folder=tmp_path)
        run.check()
        assert run.code == 2
        assert "is larger than 4 MiB" in run.output


LOCKS = {
    "keys": "a." * 40_000 + "a = 1\n",
    "hidden-keys": 'x = [""" " """, {' + "a." * 40_000 + 'a = 1}, "x"]\n',
    "tables": "".join(f"[a{row}]\n" for row in range(180_000)),
    "packages": "[[packages]]\n" * 150_000,
    "nested": "x = " + "[" * 100_000,
    "number": "x = " + "9" * 5000,
    "word": "a" * 2_000_000 + " = 1\n",
}


@pytest.mark.parametrize("name", LOCKS)
def test_security_18_a_pylock_is_refused_at_once(name: str, tmp_path: Path) -> None:
    text = 'lock-version = "1.0"\n' + LOCKS[name]
    pylock = tmp_path / "env.lock" / "local" / "pylock.toml"
    pylock.parent.mkdir(parents=True)
    pylock.write_text(text)
    (tmp_path / "env.yml").write_text("dependencies: [python]\n")
    asked = "{place: venv, arch: x86_64, base: 'docker://debian:12'}"
    base = "{reference: 'docker://debian:12'}"
    entry = f"{{recipe: r, digest: d, asked: {asked}, base: {base}, pip: {bombs.digest(text)}}}"
    (tmp_path / "env.lock.yml").write_text(f"lock: '1'\ntool: t\nsites: {{local: {entry}}}\n")
    env = tmp_path / "env.yml"
    run = recipe("diff", env, env, "--site", "local", folder=tmp_path)
    run.check()
    assert run.code == 2
    assert "lock" in run.output


def test_the_measure_itself_sees_memory(tmp_path: Path) -> None:
    """Else every test above could pass for nothing."""
    assert run_call("builtins", "len(b'x' * 400_000_000) % 2", (), tmp_path).memory > MEMORY
