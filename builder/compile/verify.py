"""The verify step: the image is asked for its torch as soon as it is built, where no engine asks while it builds."""

from __future__ import annotations

from builder.compile.content import carried
from builder.compile.scripts import build_job, step_script
from builder.model.plan import File, Step
from builder.model.target import Target

PROOF = "proof.json"


def inside_line(target: Target) -> str:
    """`inside`: run a command in the image, with this folder as its working folder; after run/container.sh."""
    if target.backend == "tykky":
        return 'inside() { in_image "$@"; }'
    # /mnt is in every image, whatever folder this is.
    call = '"$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"'
    return f"inside() {{ (image_variables && exec {call}); }}" if carried(target) else f"inside() {{ {call}; }}"


def verify_step(target: Target, *, script: str, name: str) -> tuple[Step, tuple[File, ...]]:
    """The step with its script and job; the question and the expected answer are files of the smoke test."""
    lines = [
        ". run/container.sh",
        inside_line(target),
        f"rm -f {PROOF}",
        "# A wrong answer is in the log; the file is there only when the image is what was planned.",
        f"inside python3 -B verify.py recipe.json {PROOF} || {{",
        f"    rm -f {PROOF}",
        "    exit 1",
        "}",
    ]
    title = "Asks the image for its torch"
    text = step_script(target, title=f"{title}; needs no GPU.", modules=target.site.runtime.modules, lines=lines)
    job = build_job(target, script=script, name=name, title=title, minutes=15)
    step = Step(
        name="verify",
        kind="verify",
        why="ask the image whether it holds the planned torch",
        script=script,
        produces=(PROOF,),
        batch=job[0].path if job else "",
    )
    return step, (File(path=script, text=text, executable=True), *job)
