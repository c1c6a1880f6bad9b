"""Packages that cannot be resolved are explained in the same words by a lock and by a build."""

from __future__ import annotations

from support.rows import rows

from builder.execute.diagnose import explain
from builder.lock.session import make_resolver_error
from builder.model.finding import Location
from builder.model.plan import Step
from builder.system.process import ProcessResult

HEAD = "error: No solution found when resolving dependencies"
END = "we can conclude that your requirements are unsatisfiable."
STEP = Step(name="build-image", kind="build", why="", script="1.sh")


@rows(
    ("lines", "message", "fix"),
    [
        (
            ("  cause: Because numba==0.61.0 depends on numpy<2.2 and you require numba==0.61.0, we can conclude that",
             "         you require numpy<2.2.", f"         And because you require numpy==2.3.0, {END}"),
            "the Python packages cannot be installed together: Because numba==0.61.0 depends on numpy<2.2 and you "
            "require numba==0.61.0, we can conclude that you require numpy<2.2. "
            f"And because you require numpy==2.3.0, {END}",
            "loosen a version, or check the indexes that",
        ),
        (
            (f"  cause: Because there is no version of numpy==99.1 and you require numpy==99.1, {END}",),
            "there is no 'numpy==99.1' for this platform on the indexes that were asked",
            "choose another version, or name the index that has it with --extra-index-url",
        ),
        (
            (f"  cause: Because nix was not found in the package registry and you require nix, {END}",),
            "there is no Python package 'nix' on the indexes that were asked",
            "check its name, remove it, or name the index that has it with --extra-index-url",
        ),
        (
            ("  cause: Because the current Python version (3.11.2) does not satisfy Python>=3.12 and numpy==2.5.0",
             "         depends on Python>=3.12, we can conclude that numpy==2.5.0 cannot be used.",
             f"         And because you require numpy==2.5.0, {END}"),
            "'numpy==2.5.0' requires Python >=3.12, and the environment has 3.11.2",
            "choose a version for this Python, or Python 3.12",
        ),
        (
            ("  cause: Because the requested Python version (>=3.13) does not satisfy Python>=3.9,<3.13 and",
             "         numba==0.59.0 depends on Python>=3.9,<3.13, we can conclude that numba==0.59.0 cannot be used.",
             f"         And because you require numba==0.59.0, {END}"),
            "'numba==0.59.0' requires Python >=3.9,<3.13, and the environment has 3.13",
            "choose a version for this Python, or Python 3.12",
        ),
        (
            ("  cause: Because tensorflow==2.15.0 has no wheels with a matching Python ABI tag (e.g., `cp312`) and you",
             f"         require tensorflow==2.15.0, {END}"),
            "'tensorflow==2.15.0' has no wheel for Python 3.12",
            "choose a version that has a wheel for this Python, or another Python",
        ),
        (
            ("  cause: Because only torch-x==1.0 is available and torch-x==1.0 has only unsupported wheel variants,",
             f"         we can conclude that all versions cannot be used. And because you require torch-x, {END}"),
            "'torch-x' has variant wheels alone, which uv takes for the machine that it runs on",
            "get torch_x-1.0-variants.json from its index: `recipe inspect --gpu torch_x-1.0-variants.json --site ",
        ),
    ],
)  # fmt: skip
def test_a_lock_and_a_build_say_the_same(lines: tuple[str, ...], message: str, fix: str) -> None:
    for log in (
        [HEAD, *lines, "recipe: the packages cannot be resolved"],
        [f"#9 1.234 {line}" for line in (HEAD, *lines)],
    ):
        built = explain(STEP, log, 1)
        said = built.message.removeprefix("step 'build-image' failed: ")
        assert said.startswith(message)
        assert built.fix.startswith(fix)
    done = ProcessResult(exit_code=1, tail=(HEAD, *lines), seconds=1.0)
    (locked,) = make_resolver_error(done, at=Location(file="e.yml")).findings
    assert (locked.code, locked.message, locked.fix) == (built.code, said, built.fix)
