"""What holds for a whole job, expanded once, early, on its first node: `job.sh`, and the port of each shape."""

from __future__ import annotations

from builder.compile import shell
from builder.compile.launch.shape import is_whole
from builder.compile.scripts import module_lines, proxy_lines
from builder.model.site import Job
from builder.model.target import Target

FROM_JOB = "+job"
FREE = "free"
# Below the ports that the kernel gives away by itself (32768 and up), above those of services.
PORT_BASE = 10000
_FREE_PORT = [
    "",
    "# free_port: a port of the first node on which nothing listens, drawn by chance; ranks meet there",
    "free_port() {",
    "    local port",
    "    for _ in {1..20}; do",
    f"        port=$(({PORT_BASE} + $(od -An -N2 -tu2 /dev/urandom) % 20000))",
    "        # shellcheck disable=SC2016",
    '        if ! timeout 2 bash -c \'exec 3<>"/dev/tcp/$0/$1"\' "$MASTER_ADDR" "$port" 2>/dev/null; then',
    "            printf '%s\\n' \"$port\"",
    "            return 0",
    "        fi",
    "    done",
    '    fail "no free port was found on $MASTER_ADDR: name one by RECIPE_MASTER_PORT"',
    "}",
    "",
]


def job_script(target: Target) -> str:
    """`job.sh`: modules, addresses and the site's environment, for every shape of job."""
    site, launch = target.site, target.site.launch
    lines = ["# What holds for a whole job; sourced by the job scripts beside it.", "# shellcheck shell=bash"]
    lines += [
        ". ./engine.sh",
        "# What modules of the host set up is for the Python of the host; what the user set is for the image too.",
        "python_path=${PYTHONPATH-}",
        *module_lines((*site.runtime.modules, *site.runtime.run_modules)),
        "unset PYTHONHOME PYTHONPATH",
        'if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi',
        "set -u",
    ]
    lines += [f"unset {' '.join(launch.unset)}"] if launch.unset else []
    first_host = 'scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1'
    lines += [
        f"MASTER_ADDR=$({first_host})"
        if launch.master_addr == "first-host"
        else "MASTER_ADDR=$(hostname -i | cut -d ' ' -f 1)",
        "export MASTER_ADDR",
        *(_FREE_PORT if launch.master_port == FREE else []),
        *proxy_lines(target),
        *shell.export(launch.environment, expand=True),
    ]
    one = shell.export(launch.one_node_environment, expand=True)
    many = shell.export(launch.multi_node_environment, expand=True)
    if one or many:
        lines.append('if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then')
        lines += [f"    {line}" for line in many or [":"]]
        lines += ["else", *[f"    {line}" for line in one]] if one else []
        lines.append("fi")
    return "\n".join(lines) + "\n"


def port_lines(target: Target, job: Job) -> list[str]:
    """The port where ranks meet: found free, unless the site has one.

    Its own comes from the job's number where it says so, or where two jobs may share a node.
    """
    if target.site.launch.master_port == FREE:
        return ["MASTER_PORT=${RECIPE_MASTER_PORT:-$(free_port)}", "export MASTER_PORT"]
    fixed, plus, _ = target.site.launch.master_port.partition(FROM_JOB)
    if plus or not is_whole(target, job):
        base = int(fixed) if plus else PORT_BASE
        value = f"$(({base} + SLURM_JOB_ID % 10000))"
    else:
        value = fixed
    return [f"MASTER_PORT={value}", "export MASTER_PORT"]
