"""Words to bash and back: whatever a word holds, bash reads it as that word and does nothing else."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from builder.compile import shell
from builder.model.plan import ShellExpr

NASTY = (
    "", " ", "'", '"', "`", "$", "$(touch CANARY)", "`touch CANARY`", "${IFS}", "$HOME", "${HOME}", "\\", "\\\\", "\\'",
    "a b", "a\tb", "a\nb", "\n", "*", "?", "[a-z]", "{a,b}", "~", "~root", "!", "!!", "#x", "a#b", "-n", "--", "-", "=",
    "a=b", "&", "&&", "|", "||", ";", ";;", "<", ">", ">CANARY", "(", ")", "$((1+1))", "$'x'", '$"x"', "%s", "%", "é",
    "日本", "\u00a0", "{{ x }}", "{% raw %}", "{#", "%post", "%%", "EOF", "<<EOF", "\x01", "\x7f", "'; touch CANARY; '",
    '"; touch CANARY; "', "\\\n", "a\\", "$", "a$", "$$", "$!", "$?", "${", "${}", "${a", "$(", "$((", "@", "!x",
)  # fmt: skip
PIECES = (*NASTY, "a", "Z", "0", "_", "/", ".", ":", ",", "+")


def printed(words: list[str], *, folder: Path, environment: dict[str, str] | None = None) -> list[str]:
    """What bash makes of words that stand in its text: one process, every word ends with a NUL."""
    script = folder / "script.sh"
    script.write_text("printf '%s\\0' " + " ".join(words) + "\n", encoding="utf-8", newline="")
    done = subprocess.run(
        ["bash", "--norc", script.name],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **(environment or {})},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert sorted(path.name for path in folder.iterdir()) == ["script.sh"]
    return done.stdout.decode().split("\0")[:-1]


def random_words(count: int) -> list[str]:
    """Words of nasty pieces, the same on every run."""
    source = random.Random(20261121)
    return ["".join(source.choices(PIECES, k=source.randint(1, 8))) for _ in range(count)]


def test_a_word_is_that_word(tmp_path: Path) -> None:
    words = [*NASTY, *random_words(3000)]
    assert printed([shell.quote_word(word) for word in words], folder=tmp_path) == words


def test_only_a_reference_is_expanded(tmp_path: Path) -> None:
    """`${NAME}` is replaced by its value, which is not read again; everything else stays."""
    environment = {"CODE": "$(touch CANARY) `x` '\" \\", "EMPTY_ONE": "", "P": "/tmp/a b"}
    texts = ["${CODE}", "x${P}/y", "${EMPTY_ONE}", "${P}${CODE}", "$P", "$(P)", "\\${P}", "${P", "$${P}", "'${P}'", ""]
    source = random.Random(7)
    texts += ["".join(source.choices((*PIECES, "${P}", "${CODE}"), k=source.randint(1, 8))) for _ in range(2000)]
    known = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

    def meant(text: str) -> str:
        return known.sub(lambda match: {**environment, "HOME": "/h", "IFS": " \t\n"}[match[0][2:-1]], text)

    names = {match for text in texts for match in known.findall(text)}
    assert names == {"${CODE}", "${P}", "${EMPTY_ONE}", "${HOME}", "${IFS}"}
    found = printed(
        [shell.quote_word(ShellExpr(text)) for text in texts],
        folder=tmp_path,
        environment={**environment, "HOME": "/h"},
    )
    assert found == [meant(text) for text in texts]


@pytest.mark.parametrize("width", [1, 5, 30])
def test_a_command_of_any_length_is_these_words(tmp_path: Path, width: int) -> None:
    """Long commands go over several lines, and are the same command."""
    source = random.Random(width)
    for _ in range(20):
        words = ["--opt", *source.choices((*NASTY, *random_words(50), "--option", "-o", "x" * 40), k=width)]
        text = shell.quote_command(["printf", "%s\\0", *words])
        script = tmp_path / "script.sh"
        script.write_text(text + "\n", encoding="utf-8", newline="")
        done = subprocess.run(["bash", script.name], cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout.decode().split("\0")[:-1] == words
        assert [path.name for path in tmp_path.iterdir()] == ["script.sh"]


def test_a_command_reads_well() -> None:
    assert shell.quote_command(["srun", "--nodes=2", "bash", "run/rank.sh"]) == "srun --nodes=2 bash run/rank.sh"
    assert shell.quote_command(["echo", "it's", ShellExpr("${HOME}/x")]) == "echo 'it'\"'\"'s' \"${HOME}/x\""
    long = [
        "apptainer",
        "build",
        "--bind",
        "/" + "a" * 60,
        "--mksquashfs-args",
        "gzip",
        "--force",
        "out.sif",
        "x.def",
    ]
    assert shell.quote_command(long).splitlines() == [
        "apptainer build \\",
        "  --bind /" + "a" * 60 + " \\",
        "  --mksquashfs-args gzip \\",
        "  --force out.sif x.def",
    ]


def test_exports_hold_their_values(tmp_path: Path) -> None:
    values = {f"V{index}": value for index, value in enumerate([word for word in NASTY if "\x00" not in word])}
    lines = shell.export(values)
    script = tmp_path / "script.sh"
    tail = "printf '%s\\0' " + " ".join(f'"${name}"' for name in values)
    script.write_text("\n".join([*lines, tail]) + "\n", encoding="utf-8", newline="")
    done = subprocess.run(["bash", script.name], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == list(values.values())
    assert [path.name for path in tmp_path.iterdir()] == ["script.sh"]


def test_exports_expand_where_they_are_told_to() -> None:
    assert shell.export({"A": "${B}/c"}, expand=True) == ['export A="${B}/c"']
    assert shell.export({"A": "${B}/c"}) == ["export A='${B}/c'"]
    with pytest.raises(AssertionError, match="checked when the file was read"):
        shell.export({"A B": "c"})


@pytest.mark.parametrize("text", [*NASTY, "a\rb", "a\u2028b", "a\x0bb", "a\x0cb", "a\x85b", "touch x\ntouch CANARY"])
def test_a_comment_is_one_line(text: str) -> None:
    line = shell.comment(text)
    assert line.startswith("# ")
    assert len(line.splitlines()) == 1
