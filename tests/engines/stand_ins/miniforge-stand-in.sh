#!/usr/bin/env bash
# A stand-in for the installer of Miniforge: it asks for its licence as the real one does (without -b), and installs a
# `conda` that makes environments of Python's venv and pip.
set -eu
prefix=""
batch=no
while getopts "bsp:" option; do
    case $option in
        b) batch=yes ;;
        p) prefix=$OPTARG ;;
        *) : ;; # -s: no shell is set up
    esac
done
if [ "$batch" = no ]; then
    printf 'Welcome to the stand-in for Miniforge\n\nPlease, press ENTER to continue\n>>> '
    read -r _
    printf 'LICENCE OF THE STAND-IN\nDo you accept the license terms? [yes|no]\n>>> '
    read -r _ || true
    exit 0
fi
mkdir -p "$prefix/bin" "$prefix/condabin" "$prefix/envs" "$prefix/etc/profile.d"
cat >"$prefix/etc/profile.d/conda.sh" <<SH
export CONDA_EXE=$prefix/bin/conda
export PATH="$prefix/condabin:\$PATH"
conda() {
    if [ "\$1" = activate ]; then
        export CONDA_PREFIX="$prefix/envs/\$2"
        export PATH="\$CONDA_PREFIX/bin:\$PATH"
    else
        "\$CONDA_EXE" "\$@"
    fi
}
SH
cat >"$prefix/bin/conda" <<'PYTHON'
#!/usr/bin/python3
import re
import subprocess
import sys
from pathlib import Path

PREFIX = Path(__file__).resolve().parents[1]
KNOWN = ("python", "pip")


def parts(text):
    """conda's and pip's packages of an environment file in the form that the tool writes."""
    conda, pip = [], []
    for line in text.partition("dependencies:")[2].splitlines():
        entry = re.fullmatch(r"( +)- (.+)", line)
        if entry and entry[2] != "pip:":
            (conda if len(entry[1]) <= 2 else pip).append(entry[2].strip("'\""))
    return conda, pip


def create(file, name):
    conda, pip = parts(Path(file).read_text())
    missing = [spec for spec in conda if re.split("[=<>! ]", spec)[0] not in KNOWN]
    if missing:
        sys.exit("PackagesNotFoundError: The following packages are not available from current channels:\n\n  - " + missing[0])
    folder = PREFIX / "envs" / name
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True)
    if pip:
        requirements = folder / "requirements.txt"
        requirements.write_text("\n".join(pip) + "\n")
        installer = ["/usr/bin/python3", "-m", "pip", "--python", folder / "bin" / "python"]  # a pip of its own takes seconds
        done = subprocess.run([*installer, "install", "-q", "-r", requirements])
        if done.returncode:
            sys.exit("CondaEnvException: Pip failed")


words = [word for word in sys.argv[1:] if word not in ("-q", "-y", "-v", "-vv", "-vvv")]
if words[:2] == ["info", "--base"]:
    print(PREFIX)
elif words[:2] == ["env", "create"]:
    create(words[words.index("-f") + 1], words[words.index("-n") + 1])
elif words[:1] not in (["update"], ["clean"]):
    sys.exit(f"the stand-in for conda does not know: {' '.join(words)}")
PYTHON
chmod 755 "$prefix/bin/conda"
ln -s ../bin/conda "$prefix/condabin/conda"
