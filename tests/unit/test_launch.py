"""Launch: shapes of jobs, what each is started with, which commands are refused, what the suite expects."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.matrix import TOOL, bare_target, script_of
from support.rows import rows

from builder.compile.image_plans import make_image_target, make_smoke_plan
from builder.compile.launch import Shape, check_command, choose_job, choose_suite, make_shape, make_shape_script
from builder.compile.launch.container_scripts import make_job_environment, make_rank_script
from builder.compile.launch.launchers import find_visibility
from builder.compile.launch.shape import choose_launch
from builder.compile.launch.suite_scripts import SUITES
from builder.model.finding import ConfigError, UnsupportedError
from builder.model.plan import PlanFile
from builder.model.recipe import PipRequirement
from builder.model.site import Job, Purpose
from builder.model.target import Context, Target
from builder.parse.site import BUNDLED, load_site

FREE_PORT = "${RECIPE_MASTER_PORT:-$(free_port)}"
SLURM = [path.stem for path in sorted(BUNDLED.glob("*.yaml")) if path.stem != "local"]
# GCD -> the cores next to it: LUMI user guide, distribution and binding.
LUMI_CORES = {
    0: range(49, 56), 1: range(57, 64), 2: range(17, 24), 3: range(25, 32),
    4: range(1, 8), 5: range(9, 16), 6: range(33, 40), 7: range(41, 48),
}  # fmt: skip
LUMI_NUMA = {0: 3, 1: 3, 2: 1, 3: 1, 4: 0, 5: 0, 6: 2, 7: 2}  # GCD -> NUMA domain of 16 cores, from the same page


def test_mpi_without_a_launcher_needs_no_torch() -> None:
    context = Context(tool=TOOL)
    target = make_image_target(load_site("local"), image="/images/a.sif", context=context, workloads=("mpi",))
    assert target.environment.torch is None
    assert any('smoke mpi --alone --result "$results/smoke-mpi.json" ||' in one.text for one in _list_files(target))
    assert not any("smoke mpi" in one.text for one in _list_files(replace(target, site=load_site("lumi-g"))))


def _list_files(target: Target) -> tuple[PlanFile, ...]:
    return make_smoke_plan(target).files


def facts(job: Job) -> tuple[int, int | None, int, int, str]:
    return job.tasks_per_node, job.cpus_per_task, job.gpus, job.devices, job.options.get("mem", "")


@rows(
    ("site", "nodes", "devices", "purpose", "expected"),
    [
        ("lumi-g", None, None, "gpu", (1, 7, 1, 1, "60G")),
        ("lumi-g", None, 3, "node", (3, 7, 3, 3, "180G")),
        ("lumi-g", 1, None, "node", (8, 7, 8, 8, "480G")),
        ("lumi-g", None, 8, "node", (8, 7, 8, 8, "480G")),
        ("lumi-g", 4, None, "nodes", (8, 7, 8, 8, "480G")),
        ("lumi-g", 2, 4, "nodes", (4, 7, 4, 4, "240G")),
        ("frontier", 1, 2, "node", (2, 7, 2, 2, "")),
        ("dawn", 1, 3, "node", (3, 12, 2, 3, "")),  # three stacks are on two cards
        ("dawn", None, 1, "gpu", (1, 24, 1, 1, "")),
        ("mn5", 1, 2, "node", (1, 40, 2, 2, "")),  # one task starts torchrun for both
        ("mn5", 8, None, "nodes", (1, 80, 4, 4, "")),
        ("lumi-c", 3, None, "nodes", (8, 16, 0, 0, "224G")),
    ],
)
def test_a_shape_takes_its_share(
    site: str, nodes: int | None, devices: int | None, purpose: Purpose, expected: tuple[int, int, int, int, str]
) -> None:
    target = bare_target(site)
    found, job = choose_job(target, nodes=nodes, devices=devices)
    assert (found, facts(job), job.nodes) == (purpose, expected, nodes or 1)
    ranks = devices or expected[3] or expected[0]
    assert make_shape(target, job) == Shape(nodes=nodes or 1, devices=expected[3], ranks_per_node=ranks)


@rows(
    ("site", "nodes", "devices", "message"),
    [
        ("lumi-g", None, 9, "a node of 'lumi-g' has 8 devices, not 9"),
        ("lumi-c", 1, 1, "'lumi-c' has no GPUs"),
        ("dawn", 2, 4, "a job of 2 nodes of 'dawn' takes all 8 devices of each"),
        ("mn5", 0, None, "a job of 0 nodes"),
        ("mn5", 1, -1, "a job of -1 devices"),
        ("local", 1, None, "'local' has no scheduler: it has no jobs"),
    ],
)
def test_a_shape_that_a_site_does_not_have_is_refused(
    site: str, nodes: int | None, devices: int | None, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_job(
            bare_target(site, stem="mnist-local" if site == "local" else "finetune"), nodes=nodes, devices=devices
        )
    (finding,) = caught.value.findings
    assert (finding.code, finding.message) == ("launch-shape", message)
    assert finding.fix


def test_a_site_without_the_job_says_which_it_has() -> None:
    target = bare_target("lumi-g")
    jobs = {name: job for name, job in target.site.scheduler.jobs.items() if name != "nodes"}
    poor = replace(target, site=replace(target.site, scheduler=replace(target.site.scheduler, jobs=jobs)))
    with pytest.raises(ConfigError) as caught:
        choose_job(poor, nodes=2, devices=None)
    assert caught.value.findings[0].fix == "it has: gpu, node; add the job to a site of your own"


def test_the_masks_of_lumi_are_the_cores_next_to_each_gcd() -> None:
    """The script's own line against the user guide's map: GCD, NUMA domain, cores, none of the system's."""
    line = next(line for line in script_of("lumi-g", nodes=2, devices=None).splitlines() if "--cpu-bind" in line)
    masks = re.findall(r"0x[0-9a-f]+", line)
    assert len(masks) == 8
    for gcd, mask in enumerate(masks):
        cores = [core for core in range(64) if int(mask, 16) >> core & 1]
        assert cores == list(LUMI_CORES[gcd])
        assert {core // 16 for core in cores} == {LUMI_NUMA[gcd]}
        assert not {core for core in cores if core % 8 == 0}  # the first core of each L3 group is the system's


@rows(("nodes", "devices"), [(None, None), (None, 3), (1, 7), (2, 4)])
def test_parts_of_a_node_are_not_bound_by_masks(nodes: int | None, devices: int | None) -> None:
    text = script_of("lumi-g", nodes=nodes, devices=devices)
    assert "mask_cpu" not in text
    assert "--expect-masks" not in text


def test_lines_of_the_launchers() -> None:
    frontier = script_of("frontier", nodes=2, devices=None)
    assert "rank) gpu_options=(--gpus-per-task=1 --gpu-bind=closest) ;;" in frontier
    assert "*) gpu_options=(--gpus-per-node=8) ;;" in frontier
    assert 'srun --kill-on-bad-exit=1 "--cpus-per-task=${SLURM_CPUS_PER_TASK}" "${gpu_options[@]}" bash' in frontier
    one = script_of("frontier", nodes=None, devices=None).replace(" \\\n      ", " ")
    assert 'srun --kill-on-bad-exit=1 --gpus-per-task=1 "--cpus' in one
    assert 'mpiexec -n "${world}" -ppn "${tasks}" --hosts "${hosts}"' in script_of("dawn", nodes=2, devices=None)
    mn5 = script_of("mn5", nodes=2, devices=None)
    words = mn5.replace(" \\\n", " ").split()
    assert words[(place := words.index("srun")) : place + 6] == [
        "srun", "--kill-on-bad-exit=1", "--ntasks-per-node=1", "--wait=60", '"--cpus-per-task=${SLURM_CPUS_PER_TASK}"',
        "bash",
    ]  # fmt: skip
    assert "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}" in mn5
    rank = make_rank_script(bare_target("mn5"))
    assert '--node_rank "$SLURM_PROCID"' in rank
    assert "SLURM_PROCID" not in mn5 + make_job_environment(
        bare_target("mn5")
    )  # late: the job's own is 0 for all nodes


@rows(
    ("site", "nodes", "devices", "port"),
    [
        ("lumi-g", 2, None, "$((10000 + SLURM_JOB_ID % 10000))"),
        ("dawn", 2, None, "$((50000 + SLURM_JOB_ID % 10000))"),
        ("mn5", 2, None, FREE_PORT),
        ("mn5", 1, 2, FREE_PORT),  # another job may be on the node
        ("frontier", 1, 2, "3442"),  # whole nodes, whatever is asked for
        ("mn5-gpp", 1, None, FREE_PORT),
        ("mn5-gpp", None, None, FREE_PORT),
        ("lumi-c", 2, None, "29500"),
        ("lumi-c", None, None, "$((10000 + SLURM_JOB_ID % 10000))"),
    ],
)
def test_two_jobs_of_a_node_do_not_meet(site: str, nodes: int | None, devices: int | None, port: str) -> None:
    assert f"\nMASTER_PORT={port}\n" in script_of(site, nodes=nodes, devices=devices)
    assert ("free_port() {" in make_job_environment(bare_target(site))) == (port == FREE_PORT)


def test_security_10_torchruns_rendezvous_is_random_and_on_no_command_line() -> None:
    job, rank = script_of("mn5", nodes=2, devices=None), make_rank_script(bare_target("mn5"))
    assert "PET_RDZV_ID=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')" in job
    assert "export PET_RDZV_ID PET_RDZV_ENDPOINT" in job
    assert (
        job.index("MASTER_PORT=")
        < job.index("launch() {")
        < job.index("PET_RDZV_ENDPOINT=")
        < job.index("    run_ranks srun")
    )
    command = rank[rank.index("exec_image python3 -m torch.distributed.run") :]
    assert "--rdzv_backend c10d" in command
    for word in ("rdzv_id", "rdzv-id", "rdzv_endpoint", "PET_", "SLURM_JOB_ID", "MASTER_"):
        assert word not in command


@rows("name", SLURM)
def test_what_is_early_is_early_and_what_is_late_is_late(name: str) -> None:
    target = bare_target(name)
    early, late = make_job_environment(target), make_rank_script(target)
    assert "MASTER_ADDR=" in early
    assert "MASTER_ADDR=" not in late
    for variable in ("SLURM_PROCID", "SLURM_LOCALID", "PMI_RANK", "MPI_LOCALRANKID"):
        assert variable not in early
    # The last thing a task does is to become the command: signals of the launcher reach that.
    assert re.search(r"^exec_image ", late, re.MULTILINE)


@rows("name", SLURM)
def test_modules_are_loaded_before_anything_is_set(name: str) -> None:
    """A module may set what the site's own environment must win over; `set -u` stands after Lmod's code."""
    text = make_job_environment(bare_target(name))
    modules = [match.start() for match in re.finditer("use_module", text)]
    assert all(place < text.index("set -u") < text.index("MASTER_ADDR=") for place in modules)


@rows(
    ("command", "found"),
    [
        ("torchrun --nproc_per_node 8 train.py", "torchrun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("python3 -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python -u -W ignore -m torch.distributed.launch train.py", "python -m torch.distributed.launch"),
        ("python3.12 -um torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("env A=1 B=2 torchrun train.py", "torchrun"),
        ("A=1 torchrun train.py", "torchrun"),
        ("python3 train.py -m torch.distributed.run", ""),
        ("python3 -m train torchrun", ""),
        ("python3 -c pass", ""),
        ("python3 torchrun", ""),
        ("bash train.sh", ""),
        ("", ""),
    ],
)
def test_torchrun_is_seen_where_it_is_the_command(command: str, found: str) -> None:
    findings = check_command(bare_target("frontier"), command.split())
    assert [finding.level for finding in findings] == (["error"] if found else [])
    if found:
        assert findings[0].code == "launch-torchrun"
        assert findings[0].message.startswith(f"'{found}' must not be used on 'frontier': it binds all ranks")
    findings = check_command(bare_target("lumi-g"), command.split())
    assert [(finding.code, finding.level) for finding in findings] == ([("launch-nested", "warning")] if found else [])


# --- the suite --------------------------------------------------------------------------------------------------------


def test_the_suite_of_a_shape() -> None:
    target = bare_target("lumi-g")
    assert choose_suite(target, "gpu") == ("probe", "mnist", "startup")
    assert (
        choose_suite(target, "node") == choose_suite(target, "nodes") == ("probe", "ddp", "pi", "allreduce", "startup")
    )
    named = bare_target("lumi-g", stem="mnist")
    smoke = replace(named.recipe.container.smoke, workloads=("ddp",))
    named = replace(named, recipe=replace(named.recipe, container=replace(named.recipe.container, smoke=smoke)))
    assert (choose_suite(named, "gpu"), choose_suite(named, "nodes")) == (("probe",), ("probe", "ddp"))
    without = replace(target, environment=replace(target.environment, torch=None))
    assert choose_suite(without, "gpu") == (("imports",) if target.recipe.container.smoke.imports else ())


def test_the_suite_proves_mpi_where_ranks_are_mpi_ranks() -> None:
    usual = ("probe", "ddp", "pi", "allreduce", "startup")
    for site, more in (("lumi-g", ("mpi",)), ("dawn", ("mpi",)), ("mn5", ()), ("local", ())):
        target = bare_target(site)
        target = replace(target, recipe=replace(target.recipe, pip=(PipRequirement(text="mpi4py", name="mpi4py"),)))
        assert (choose_suite(target, "gpu"), choose_suite(target, "nodes")) == (SUITES["gpu"], (*usual, *more))
        without = replace(target, environment=replace(target.environment, torch=None))
        assert choose_suite(without, "nodes") == more
        for name, mpi in (("lumi-g", "image"), ("dawn", "host")):
            if name == site:
                script = make_shape_script(without, without.site.scheduler.jobs["nodes"], purpose="nodes").file.text
                assert f"--expect-mpi {mpi}" in words_of(script, "mpi")
                assert "device=" not in script


def test_the_wheel_of_mpi4py_looks_for_the_hosts_mpi_first() -> None:
    """Where the host's takes the place of the image's; `libmpi.so.12` is looked for on LD_LIBRARY_PATH."""
    line = 'site_variable MPI4PY_LIBMPI "libmpi.so.12:/opt/env/lib:"'
    for site, there in (("frontier", True), ("setonix", True), ("lumi-g", False), ("mn5", False), ("dawn", False)):
        assert (line in make_job_environment(bare_target(site)).splitlines()) is there, site
    lines = script_of("dawn", nodes=2, devices=None).splitlines()
    assert 'export MPI4PY_LIBMPI="${MPI4PY_LIBMPI:-libmpi.so.12:/opt/env/lib:}"' in lines


def words_of(script: str, workload: str) -> str:
    """The call of one workload as one line."""
    return next(
        line
        for line in script.replace(" \\\n  ", " ").splitlines()
        if re.match(rf"(every_rank|one_process) {workload} ", line)
    )


def test_a_site_says_what_the_probe_expects() -> None:
    lumi = words_of(script_of("lumi-g", nodes=2, devices=None), "probe")
    masks = ",".join(load_site("lumi-g").launch.cpu_masks)
    for word in (
        f"--expect-masks {masks} ", "--expect-cores 7 ", "--expect-devices 8 ", "--expect-gfx gfx90a ",
        '"${network[@]}" ', "--cache-not-under /pfs ", '--expect-ranks "${ranks}" ',
        '"${expected_variables[@]}" ',  # what job.sh has set: the site's variables, or the user's in their place
    ):  # fmt: skip
        assert word in lumi, word
    lines = script_of("lumi-g", nodes=2, devices=None).splitlines()
    place = lines.index("network=(--expect-network 'NET/OFI|aws-ofi')")
    assert lines[place + 1].startswith('if [ "$SLURM_JOB_NUM_NODES" -eq 1 ]; then network=(); fi')
    assert "network" not in script_of("lumi-g", nodes=1, devices=None)
    dawn = script_of("dawn", nodes=2, devices=None)
    assert "network" not in dawn  # not known
    dawn = words_of(dawn, "probe")
    assert '--expect-devices "${tasks}"' in dawn  # stacks or cards: known when the job runs
    assert "--expect-gfx" not in dawn
    assert 'site_variable NCCL_NET "Socket"' in make_job_environment(bare_target("frontier"))


def test_a_suite_fits_into_the_time_of_its_job() -> None:
    for site in SLURM:
        target = bare_target(site)
        for purpose in ("gpu", "node", "nodes"):
            job = target.site.scheduler.jobs[purpose]
            script = make_shape_script(target, job, purpose=purpose).file.text  # type: ignore[arg-type]
            limits = [int(number) for number in re.findall(r"--timeout (\d+)", script)]
            assert len(limits) == len(choose_suite(target, purpose))  # type: ignore[arg-type]
            assert sum(limits) < job.minutes * 60


def test_a_machine_without_a_scheduler_runs_the_suite_too() -> None:
    plan = make_smoke_plan(make_image_target(load_site("local"), image="/x.sif", context=Context(tool=TOOL)))
    texts = {file.path: file.text for file in plan.files}
    assert "begin_suite one probe mnist startup" in texts["run/one.sh"]
    assert "begin_suite ranks probe ddp pi allreduce startup" in texts["run/ranks.sh"]
    assert "device=(--device cpu)" in texts["run/ranks.sh"]


# --- the user's choice ------------------------------------------------------------------------------------------------


def chosen(site: str, *, launcher: str | None = None, gpu_visibility: str | None = None) -> Target:
    target = bare_target(site)
    return replace(target, site=choose_launch(target.site, launcher=launcher, gpu_visibility=gpu_visibility))


@rows(
    ("site", "launcher", "devices", "expected"),
    [
        ("lumi-g", "torchrun", None, (1, 56, 8, 8, "480G")),
        ("lumi-g", "torchrun", 2, (1, 14, 2, 2, "120G")),
        ("mn5", "srun", None, (4, 20, 4, 4, "")),
        ("mn5", "srun", 2, (2, 20, 2, 2, "")),
        ("lumi-c", "torchrun", None, (1, 128, 0, 0, "224G")),
        ("lumi-g", "srun", None, (8, 7, 8, 8, "480G")),
    ],
)
def test_a_chosen_launcher_has_the_cores_of_the_sites(
    site: str, launcher: str, devices: int | None, expected: tuple[int, int | None, int, int, str]
) -> None:
    target, plain = chosen(site, launcher=launcher), bare_target(site)
    purpose, job = choose_job(target, nodes=1, devices=devices)
    assert facts(job) == expected
    _, own = choose_job(plain, nodes=1, devices=devices)
    assert make_shape(target, job).ranks_per_node == make_shape(plain, own).ranks_per_node
    script = make_shape_script(target, job, purpose=purpose).file.text
    assert ("RECIPE_RANKS" in script) == (launcher == "torchrun")
    assert ("mask_cpu" in script) == (launcher == "srun" and site == "lumi-g")


@rows(
    ("site", "launcher", "gpu_visibility", "code", "message"),
    [
        ("frontier", "torchrun", "", "launch-torchrun", "torchrun must not be used on 'frontier': it binds all ranks"),
        ("dawn", "srun", "", "option-value", "the ranks of 'dawn' are started by mpiexec"),
        ("dawn", "torchrun", "", "option-value", "the ranks of 'dawn' are started by mpiexec"),
        ("local", "torchrun", "", "option-value", "'local' has no Slurm"),
        ("lumi-c", "", "rank", "option-value", "'lumi-c' has no GPUs"),
    ],
)
def test_a_choice_that_a_site_does_not_have_is_refused(
    site: str, launcher: str, gpu_visibility: str, code: str, message: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose_launch(load_site(site), launcher=launcher, gpu_visibility=gpu_visibility)
    (finding,) = caught.value.findings
    assert (finding.code, finding.message.startswith(message), bool(finding.fix)) == (code, True, True)


def test_a_choice_of_nothing_changes_nothing() -> None:
    for site in map(load_site, SLURM):
        assert choose_launch(site) is site


def test_the_order_of_devices_is_the_map_of_frontier() -> None:
    """OLCF's map of a node: NUMA domain of 16 cores -> its GCDs; rank i has the cores 8 i + 1 to 8 i + 7."""
    near = {0: (4, 5), 1: (2, 3), 2: (6, 7), 3: (0, 1)}
    order = load_site("frontier").launch.gpu_order
    assert order == tuple(near[8 * rank // 16][rank % 2] for rank in range(8))
    whole, part = (script_of("frontier", nodes=1, devices=devices) for devices in (None, 2))
    assert "export RECIPE_GPU_ORDER=4,5,2,3,6,7,0,1" in whole
    assert "unset RECIPE_GPU_ORDER" in part


def test_options_that_give_a_rank_its_device_decide() -> None:
    launch = load_site("lumi-g").launch
    assert find_visibility(launch) == "node"
    assert find_visibility(replace(launch, options=("--gpus-per-task=1",))) == "rank"
    assert find_visibility(replace(launch, rank_environment={"ROCR_VISIBLE_DEVICES": "${SLURM_LOCALID}"})) == "rank"
    assert find_visibility(load_site("frontier").launch) == "rank"


def test_a_command_that_is_torchrun_takes_the_place_of_the_jobs() -> None:
    for command in (
        "torchrun --standalone train.py",
        "/opt/venv/bin/torchrun x.py",
        "python3 -m torch.distributed.run x",
    ):
        assert check_command(chosen("lumi-g", launcher="torchrun"), command.split()) == ()
        (finding,) = check_command(bare_target("lumi-g"), command.split())
        assert finding.fix.endswith("or give `--launcher torchrun`")
    (finding,) = check_command(bare_target("mn5"), ["env", "torchrun"])
    assert finding.code == "launch-nested"
