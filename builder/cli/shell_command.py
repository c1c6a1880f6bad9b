"""recipe shell: a shell in an image with the site's settings."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import add_here_option, add_plain_verbosity, add_trust_option, make_context
from builder.cli.output import show_findings
from builder.cli.scratch_plan import write_scratch_plan
from builder.compile.image_plans import make_image_target
from builder.compile.start_plans import START, make_shell_plan
from builder.execute.machine import check_run_machine
from builder.execute.preflight import check_bindable, find_programs
from builder.inspect.image_programs import list_programs
from builder.pipeline.prepare import check_here
from builder.pipeline.resolution import add_gpu
from builder.system.process import attach

# Without the user's own files: they are for the programs of the machine.
SHELLS = {"bash": ("bash", "--noprofile", "--norc"), "sh": ("sh",)}
PROMPTS = {"bash": "({name}) \\w \\$ ", "sh": "({name}) $ "}
WRAPPED = "_debug_shell"  # of an installation of tykky: the other programs there are those of the machine
PLAIN = re.compile(r"[A-Za-z0-9._+-]{1,40}")  # a prompt is expanded: nothing else of a name is put into it


@click.command("shell", cls=GroupedCommand)
@click.argument("words", metavar="[SITE] IMAGE", nargs=-1)
@add_here_option
@add_trust_option
@add_plain_verbosity
def run_command(words: tuple[str, ...], here: bool) -> None:
    """Open a shell in IMAGE with SITE's binds, devices and variables, here or in the allocation of this shell.

    It starts in the current folder and reads none of your shell's files; without a terminal it reads commands from
    standard input. Its exit code is that of the shell.
    """
    named = read_image_words(words, what="image")
    site, path = named.site, named.path
    target = make_image_target(
        site, image=str(path), context=add_gpu(make_context(), site), folder=(path / "bin").is_dir()
    )
    check_bindable(Path.cwd(), what="the current folder", fix="start it in a folder without it")
    check_here(site, here=here, what="a shell", instead="get a node first, as with salloc")
    doubt = check_run_machine(site, environment=os.environ, sure=here)
    show_findings([doubt] if doubt else [])
    plan = make_shell_plan(target)
    find_programs(plan.steps, environment=os.environ)
    inside = site.scheduler.kind == "slurm" and bool(os.environ.get("SLURM_JOB_ID"))
    sys.stdout.flush()
    with write_scratch_plan(plan, shared=inside) as folder:
        line = ["bash", str(folder / START), *_choose_shell(path)]
        code = attach(line, cwd=Path.cwd(), env=dict(os.environ))
    if code:
        raise click.exceptions.Exit(code)


def _choose_shell(image: Path) -> list[str]:
    """The command: bash where the image has one, with the image's name in its prompt."""
    if (image / "bin" / WRAPPED).exists():
        return [WRAPPED]
    programs = list_programs(image)
    bash = programs is None or any("bash" in names for names in programs.values())
    shell = "bash" if bash else "sh"
    name = image.stem if PLAIN.fullmatch(image.stem) else "image"
    # Apptainer 1.4.5 sets its own prompt by PROMPT_COMMAND.
    return ["env", "-u", "PROMPT_COMMAND", f"PS1={PROMPTS[shell].format(name=name)}", *SHELLS[shell]]
