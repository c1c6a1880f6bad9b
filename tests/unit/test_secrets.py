"""Secrets in a recipe are refused or warned of, and no part of one is repeated; what is ordinary passes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute.plan_folder import write_plan
from builder.model import secrets
from builder.model.finding import ConfigError, Finding
from builder.model.plan import Copy, Plan
from builder.model.secrets import (
    Mask,
    find_address_secret,
    find_command_secret,
    find_value_secret,
    redact,
    strip_all_credentials,
    strip_credentials,
)
from builder.model.text import sanitize
from builder.parse.copied_files import IgnoreRules
from builder.parse.lock_files import read_conda, read_pylock
from builder.parse.recipe import load_recipe

# Every one has CRET in it; what may stand in a password, as it is and as an address writes it.
WORDS = (
    "S3CRETpass", "S3 CRET", "S3@CRET", "S3/CRET", "S3#CRET", "S3?CRET", "S3:CRET", "S3%40CRET", "S3\u2028CRET",
    "123/S3CRET", "S3'CRET", "S3;CRET", "S3@CR/S3CRET", "@S3CRET", "S3,CRET",
)  # fmt: skip
PLAIN = ("S3CRETpass", "S3CRETquery16xY7", "S3%2DCRET")
FORMS = (
    *(f"https://user:{word}@h.example/simple" for word in WORDS),
    *(f"https://{word}@h.example/simple" for word in PLAIN),
    *(
        f"https://h.example/simple?{key}={word}"
        for word in PLAIN
        for key in (
            "token",
            "access_token",
            "private_token",
            "sig",
            "X-Amz-Signature",
            "X-Amz-Security-Token",
            "api_key",
            "to%6ben",
        )
    ),
    *(f"https://h.example/t/{word}/simple" for word in PLAIN),
    *(f"https://h.example/simple#{word}" for word in PLAIN),
    "https://h.example/simple?S3CRETquery",
    "https://h.example/simple#token=S3CRETx",
    "https://h.example/t/S3CRETx",
    "https://h.example/x/hf_S3CRETS3CRETS3CRETS3CRET/simple",
)
SSH = ("git+ssh://S3CRETtoken@h.example/x.git", "git+ssh://user:S3CRET@h.example/x.git", "git+ssh://S3CRET1S3CRET2@h/x")


def yaml(text: str) -> str:
    return json.dumps(text)


def in_pip(line: str) -> str:
    return f"dependencies:\n  - pip:\n    - {yaml(line)}\n"


PLACES: Mapping[str, Callable[[str], str]] = {
    "channel": lambda url: f"channels: [{yaml(url)}]\ndependencies: [numpy]\n",
    "channel of a package": lambda url: f"dependencies: [{yaml(url + '::numpy')}]\n",
    "channel in brackets": lambda url: f"dependencies: [{yaml(f'numpy[channel={url}]')}]\n",
    "index": lambda url: in_pip(f"--index-url {url}"),
    "extra index": lambda url: in_pip(f"--extra-index-url={url}"),
    "short index": lambda url: in_pip(f"-i {url}"),
    "links": lambda url: in_pip(f"--find-links {url}"),
    "package": lambda url: in_pip(f"foo @ {url}"),
    "bare package": in_pip,
    "source": lambda url: in_pip(f"foo @ git+{url}"),
    "editable": lambda url: in_pip(f"-e git+{url}"),
    "marker": lambda url: in_pip(f"foo @ {url} ; python_version < '3.13'"),
    "requirements": lambda url: in_pip(f"-r {url}"),
    "constraints": lambda url: in_pip(f"-c {url}"),
    "two options": lambda url: in_pip(f"--pre --index-url {url} --no-index"),
    "unknown option": lambda url: in_pip(f"--proxy {url}"),
}  # fmt: skip
MATRIX = [(place, form) for place in PLACES for form in FORMS]


def findings(folder: Path, text: str, *, name: str = "env.yml") -> tuple[Finding, ...]:
    """What is said of a recipe; nothing of it may hold a part of the secret."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    try:
        found = load_recipe(path, shown=name).warnings
    except ConfigError as error:
        found = error.findings
    for finding in found:
        assert not re.search(r"S3|(?<!SE)CRET", f"{finding}"), finding
    return found


@pytest.mark.property
@pytest.mark.parametrize("place", PLACES)
def test_security_13_no_secret_in_an_address_passes_or_is_repeated(place: str, tmp_path: Path) -> None:
    passed = [form for form in FORMS if not findings(tmp_path, PLACES[place](form))]
    assert not passed


@rows("form", [*FORMS, *SSH])
@rows("around", ["{}", "--index-url {}", "x @ {}", "{} {}"])
def test_security_20_no_message_repeats_a_secret(form: str, around: str) -> None:
    """Wherever a text of somebody is shown, whether its place was looked at for secrets or not."""
    said = sanitize(around.format(form, form), limit=1000)
    assert "CRET" not in said
    assert "://" in said


@pytest.mark.parametrize(
    "text", ["https://h.example:8080/simple/x.whl", "a: b@c", "docker://h:5000/x/y:1@sha256:" + "0" * 64]
)
def test_a_message_shows_what_is_no_secret(text: str) -> None:
    assert sanitize(text, limit=1000) == text


def test_security_13_the_matrix_is_as_large_as_it_was() -> None:
    assert len(MATRIX) > 560


@rows("form", FORMS)
def test_security_13_no_secret_in_a_requirements_file(form: str, tmp_path: Path) -> None:
    for line in (f"--index-url {form}", f"foo @ {form}", f"--extra-index-url '{form}'", f"-f {form}"):
        assert findings(tmp_path, f"numpy\n{line}\n", name="requirements.txt"), line


@pytest.mark.parametrize("url", SSH)
def test_security_13_a_token_in_the_place_of_a_user(url: str, tmp_path: Path) -> None:
    assert [item.code for item in findings(tmp_path, in_pip(f"foo @ {url}"))] == ["url-secret"]


@rows("value", ["user:S3CRET@h.example", "user:S3 CRET@h.example", "S3CRET@h", "u:S3/CRET@h:8080"])
@rows("form", ["--trusted-host {}", "--trusted-host={}", "--pre --trusted-host {}"])
def test_security_13_a_login_of_a_trusted_host(form: str, value: str, tmp_path: Path) -> None:
    assert [item.code for item in findings(tmp_path, in_pip(form.format(value)))] == ["url-secret"]


def test_security_13_a_path_that_looks_like_a_token_is_a_warning(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, in_pip("--extra-index-url https://h.example/S3CRETpath/simple") + "  - numpy\n")
    assert (found.code, found.level) == ("secret-path", "warning")


ORDINARY = (
    "foo @ https://files.example/packages/ab/cd/" + "0a" * 30 + "/foo-1.0-py3-none-any.whl#sha256=" + "0" * 64,
    "foo @ git+https://github.com/org/repo.git@v1.0#egg=foo&subdirectory=sub",
    "foo @ git+ssh://git@github.com/org/repo.git@0123456789012345678901234567890123456789",
    "foo @ git+ssh://deploy@host.example:2222/org/repo.git",
    "foo @ git+https://host.example:8443/repo.git@main", "--extra-index-url https://host.example:8443/simple/",
    "--extra-index-url https://download.pytorch.org/whl/cu126", "--trusted-host host.example:8080",
    "--index-url https://[::1]:8080/simple", "foo @ https://host.example/foo-1.0.tar.gz?download=1",
    "foo @ https://gitlab.example/api/v4/projects/12/packages/pypi/files/foo-1.0-py3-none-any.whl?inline=false",
    "--find-links https://storage.example/torch_releases.html", "numpy==1.26.4 --hash=sha256:" + "a" * 64,
    "--extra-index-url https://pypi.example/Python3Wheels/simple",
)  # fmt: skip


@rows("line", ORDINARY)
def test_ordinary_addresses_pass(line: str, tmp_path: Path) -> None:
    assert findings(tmp_path, f"{line}\nscipy\n" if "--hash" not in line else line, name="requirements.txt") == ()


@rows(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_S3CRET"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrS3CRET/bPx"),
        ("DB_PASSWORD", "hunter"),
        ("WANDB_API_KEY", "0123456789abcdef"),
        ("GITHUB_TOKEN", "x1"),
        ("PGPASSWORD", "pw"),
        ("MY_SECRET", "pw"),
        ("ANYTHING", "ghp_S3CRETS3CRETS3CRETS3"),
        ("ANYTHING", "AKIAIOSFODNN7EXAMPLE"),
        ("DEPLOY_KEY", "S3CRET"),
        ("ANYTHING", "glpat-S3CRETS3CRETS3CRET"),
        ("DATABASE_URL", "postgres://user:S3CRET@h/db"),
        ("PIP_INDEX_URL", "https://user:S3@CRET@h/simple"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("ANYTHING", "https://h/x?sig=S3CRET"),
        ("SIGNING_KEY", "-----BEGIN PRIVATE KEY-----"),
    ],
)
@rows("place", ["container: {{env: {{{}: {}}}}}", "variables: {{{}: {}}}", "container: {{labels: {{{}: {}}}}}"])
def test_security_13_a_value_that_is_a_secret(name: str, value: str, place: str, tmp_path: Path) -> None:
    found = findings(tmp_path, f"dependencies: [numpy]\n{place.format(name, yaml(value))}\n")
    assert [item.code for item in found] == ["secret"]
    assert f"'{value}" not in f"{found}"


def test_security_13_a_label_with_a_dot_that_is_a_secret(tmp_path: Path) -> None:
    found = findings(tmp_path, "dependencies: [numpy]\ncontainer: {labels: {x.token: S3CRET1}}\n")
    assert [item.code for item in found] == ["secret"]
    assert "S3CRET1" not in f"{found}"


@rows(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("KEY", "value"),
        ("CUDA_CACHE_PATH", "/tmp/x"),
        ("SSH_KEY", "/run/key"),
        ("MAX_TOKENS", "512"),
        ("PAD_TOKEN", "<pad>"),
        ("EOS_TOKEN", "eos"),
        ("SORT_KEY", "name"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN_PATH", "/run/secrets/hf"),
        ("HF_HOME", "/scratch/hf"),
        ("TOKEN", "$HF_TOKEN"),
        ("KEYBOARD", "us1"),
        ("AWS_DEFAULT_REGION", "eu-north-1"),
        ("NCCL_SOCKET_IFNAME", "hsn0,hsn1"),
        ("MONKEY", "banana7"),
        ("PROXY", "http://proxy.example:3128"),
        ("org.opencontainers.image.source", "https://github.com/a/b"),
        ("BYPASS", "yes"),
        ("COMPASS", "north2"),
    ],
)
def test_ordinary_values_pass(name: str, value: str) -> None:
    assert find_value_secret(name, value) == ""


@rows(
    "command",
    [
        "pip install --index-url https://user:S3CRET@h/simple x",
        "pip install --trusted-host user:S3CRET@h x",
        "export HF_TOKEN=hf_S3CRET",
        "curl -H 'Authorization: Bearer S3CRETS3CRET' https://h/x",
        "login --token S3CRET9",
        "git clone https://ghp_S3CRETS3CRETS3CRETS3@github.com/o/r",
        "DB_PASSWORD='S3 CRET' make",
        "wget 'https://h/x?sig=S3C'",
        "curl --password S3CRET1 https://h",
        "pip install -f https://h/t/S3CRET/x y",
        "python -c 'login(token=\"S3CRET1\")'",
    ],
)
def test_security_13_a_command_with_a_secret(command: str, tmp_path: Path) -> None:
    found = findings(tmp_path, f"dependencies: [numpy]\ncontainer: {{run: [{yaml(command)}]}}\n")
    assert [item.code for item in found] == ["secret"]


@rows(
    "command",
    [
        "python -m pip install --no-build-isolation flash-attn==2.5.5",
        "git clone https://github.com/o/r /opt/r",
        "git clone git@github.com:o/r.git",
        "curl -fsSL https://h.example:8443/x.tar.gz | tar xz",
        "export HF_TOKEN=$HF_TOKEN",
        'curl -H "Authorization: Bearer $TOKEN" https://h/x',
        "pip install --index-url https://$USER:$TOKEN@h/simple x",
        "python -c 'tokenizer.pad_token=tokenizer.eos_token'",
        "make KEY=value -j4",
        "wget 'https://h/x.zip?download=1'",
        "sed -i 's/key=old/key=new/' /etc/x.conf",
        "git config user.email a@b.example",
        "./configure --with-token-type=bpe",
        "docker://ubuntu:24.04 mail a@b",
        "echo 'a: b@c' > https:",
        "pip install 'x @ git+https://h/r@v1'",
    ],
)
def test_ordinary_commands_pass(command: str) -> None:
    assert find_command_secret(command) == ""


# --- locks ------------------------------------------------------------------------------------------------------------


@rows("url", [form for form in FORMS if not set(form) & set(" \u2028'\"")] + ["https://h/x?sig=S3CRET"])
def test_security_13_a_lock_with_a_secret_is_refused(url: str) -> None:
    pylock = 'lock-version = "1.0"\n[[packages]]\nname = "foo"\nversion = "1"\n'
    pylock += f'wheels = [{{ url = {yaml(url)}, hashes = {{ sha256 = "{"0" * 64}" }} }}]\n'
    pixi = f"packages:\n- conda: {yaml(url + '/linux-64/a-1-0.conda')}\n  sha256: {'0' * 64}\n"
    for read, text in ((read_pylock, pylock), (read_conda, pixi)):
        with pytest.raises(ConfigError) as caught:
            read(text, file=Path("x"))  # type: ignore[operator]
        assert "CRET" not in f"{caught.value.findings}"


@pytest.mark.parametrize("url", ["https://h/a.whl?sig=S3CRET", "https://u:S3CRET@h/a.whl", "https://h/t/S3CRET/a.whl"])
def test_security_13_a_lock_is_written_without_signatures(url: str) -> None:
    assert strip_credentials(url) == "https://h/a.whl"


@rows("address", [f"file:///home/u/t/e/{name}" for name in ("pkg", "a-1-py3-none-any.whl")] + ["git+file:///u/t/e/p"])
def test_a_folder_called_t_is_no_token_in_a_file_address(address: str) -> None:
    assert find_address_secret(address) == ""
    assert redact(f"pk @ {address}") == f"pk @ {address}"
    assert strip_credentials(address) == strip_all_credentials(address) == address
    assert Mask({})(f"from {address}") == f"from {address}"
    server = f"{address},https://h.example/t/S3CRET/x"
    assert "CRET" not in redact(server) + strip_all_credentials(server) + Mask({})(server)


# --- files ------------------------------------------------------------------------------------------------------------

SECRET_FILES = (
    ".netrc", ".env", ".env.local", ".git/config", ".ssh/id_rsa", "keys/id_ed25519", ".aws/credentials",
    ".docker/config.json", "tls/server.pem", ".pypirc", "sub/.git-credentials",
)  # fmt: skip
PLAIN_FILES = ("train.py", "ca.pem", ".env.example", ".gitignore", "docker/config.json", "data/idx.key", "sub/netrc.py")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    for name in (*SECRET_FILES, *PLAIN_FILES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("-----BEGIN PRIVATE KEY-----\n" if name == "tls/server.pem" else "S3CRET\n", encoding="utf-8")
    return folder


def copied(folder: Path, target: Path) -> set[str]:
    """What of a recipe's folder comes to lie in a plan."""
    copies = (Copy(source=".", path="image/root/o"),)
    plan = Plan(
        target="x", recipe="x", site="x", backend="x", vendor="cpu", image="x.sif", image_kind="sif", base="x",
        steps=(), files=(), copies=copies,
    )  # fmt: skip
    write_plan(plan, target, recipe_folder=folder)
    top = target / "image/root/o"
    return {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}


def test_security_13_keys_and_passwords_are_left_out_of_a_folder(sources: Path, tmp_path: Path) -> None:
    (found,) = findings(sources, "dependencies: [numpy]\ncontainer: {files: {.: /opt/src}}\n")
    assert (found.code, found.level) == ("file-secret", "warning")
    assert "and 7 more" in found.message
    assert copied(sources, tmp_path / "plan") == {*PLAIN_FILES, "env.yml"}


def test_security_13_recipeignore_says_what_else(sources: Path, tmp_path: Path) -> None:
    (sources / ".recipeignore").write_text("# ours\n*.py\n!train.py\n!.env\n/data/\n.recipeignore\n", encoding="utf-8")
    expected = ({*PLAIN_FILES} - {"sub/netrc.py", "data/idx.key"}) | {".env"}
    assert copied(sources, tmp_path / "plan") == expected


@rows(
    ("pattern", "name", "fits"),
    [
        ("*.log", "a/b.log", True),
        ("/a.log", "b/a.log", False),
        ("data/", "x/data", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("**/x", "x", True),
        ("a/**/b", "q/a/b", True),
        ("/a/**/b", "q/a/x/b", False),
        ("[!a]b", "ab", False),
        ("a*c", "a/c", False),
        ("*a" * 20 + "b", "a" * 200, False),
        ("**/a/" * 20 + "b", "a/" * 120 + "a", False),
        ("[a" * 30_000, "x", False),
    ],
)
def test_security_22_a_pattern_of_recipeignore_takes_no_time(
    pattern: str, name: str, fits: bool, tmp_path: Path
) -> None:
    """Of a pattern with twenty stars there are more ways through a long name than any time is enough for."""
    (tmp_path / ".recipeignore").write_text(f"{pattern}\n", encoding="utf-8")
    (tmp_path / name).mkdir(parents=True, exist_ok=True)
    assert IgnoreRules(tmp_path).find_reason(tmp_path / name, top=tmp_path) == ("asked" if fits else "")


@pytest.mark.parametrize(
    "source",
    ["/proc/self/environ", "/proc/self", "/sys/kernel", "/dev/shm", "link", "../../../" * 9 + "proc/self/environ"],
)
def test_security_13_what_the_kernel_shows_of_this_process_is_no_file(sources: Path, source: str) -> None:
    """`/proc/self/environ` has every password of the shell; it is an ordinary file, as far as the system says."""
    (sources / "link").symlink_to("/proc/self/environ")
    (found,) = findings(sources, f"dependencies: [numpy]\ncontainer: {{files: {{{source}: /opt/x}}}}\n")
    assert (found.code, found.level) == ("file-source", "error")
    assert "recipeignore" not in found.fix


@pytest.mark.parametrize("name", [*SECRET_FILES, ".git", ".ssh", "link"])
def test_security_13_a_secret_file_by_its_name(sources: Path, name: str) -> None:
    (sources / "link").symlink_to(".ssh/id_rsa")
    text = f"dependencies: [numpy]\ncontainer: {{files: {{{name}: /opt/x}}}}\n"
    (found,) = findings(sources, text)
    assert (found.code, found.level) == ("file-source", "error")
    (sources / ".recipeignore").write_text(f"!{Path(name).name}\n!id_rsa\n!.ssh\n!.git\n!.aws\n!.docker/config.json\n")
    assert findings(sources, text) == ()


def test_security_13_what_lies_outside_is_said(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for source in ("../notes.txt", str(tmp_path / "notes.txt")):
        (found,) = findings(sources, f"dependencies: [numpy]\ncontainer: {{files: {{{source}: /opt/x}}}}\n")
        assert (found.code, found.level) == ("file-outside", "warning")
    (tmp_path / "id_rsa").write_text("x")
    (found,) = findings(sources, "dependencies: [numpy]\ncontainer: {files: {../id_rsa: /opt/x}}\n")
    assert found.level == "error"


# --- the mask ---------------------------------------------------------------------------------------------------------


@rows(
    ("environment", "text"),
    [
        ({}, "from https://user:S3@CRETpass@h/simple"),
        ({}, "GET https://h/x?token=S3CRET&a=1"),
        ({}, "https://conda.anaconda.org/t/S3CRET/chan"),
        ({}, "https://h/x?X-Amz-Signature=S3CRET"),
        ({}, "https://user:S3/CRET@h/simple"),
        ({}, "Authorization: Bearer S3CRETS3CRET"),
        ({}, "ghp_S3CRETS3CRETS3CRETS3"),
        ({"PIP_INDEX_URL": "https://user:S3@CRET@h/s"}, "password S3@CRET"),
        ({"DB_PASSWORD": "S3/CRET x"}, "S3%2FCRET%20x"),
        ({"DB_PASSWORD": "S3/CRET x"}, "S3%2FCRET+x"),
        ({"UV_INDEX": "https://h/t/S3CRETtok/s"}, "got S3CRETtok"),
        ({"PIP_INDEX_URL": "https://h/s?token=S3CRETtok"}, "got S3CRETtok"),
        ({"K_KEY": "a\nS3CRETline\n"}, "x S3CRETline y"),
        ({"PIP_INDEX_URL": "https://user:S3 CRET@h/s"}, "password S3 CRET"),
        ({"PIP_INDEX_URL": "https://user:S3%2FCRET@h/s"}, "password S3/CRET"),
    ],
)
def test_security_20_the_mask_hides(environment: dict[str, str], text: str) -> None:
    masked = Mask(environment)(text)
    assert "CRET" not in masked
    assert "***" in masked


@rows(
    "text",
    [
        "docker://ubuntu:24.04@sha256:abc",
        "docker://h:5000/x:1@sha256:abc",
        "mail a@b, https://h/a@b",
        "/t/file",
        "x?y=1",
        "git+https://h:8443/r.git@v1",
        "https://h/x?key_type=1",
        "sorted by key=3",
    ],
)
def test_the_mask_leaves_the_rest(text: str) -> None:
    assert Mask({})(text) == text


@pytest.mark.property
@pytest.mark.parametrize("piece", ["x", "-", "//a:", "a://", "a://b:", "git://h:1/", "//a:b@//"])
def test_security_22_looking_for_secrets_takes_no_longer_for_long_values(piece: str) -> None:
    """A value that is twice as long takes twice as long: one of megabytes was looked through for minutes."""
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    for look in (secrets.redact, secrets.find_address_secret, secrets.find_command_secret):
        look(text)
    assert time.process_time() - started < 3
