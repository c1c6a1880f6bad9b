"""One rank's part of the distributed training; imports torch.

Records go through the store and not through all_gather_object, which needs numpy in most of torch's versions.
"""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import timedelta
from importlib import import_module
from typing import Any, Iterable, List

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from . import dataset, snapshot, training
from .failure import RunError
from .rank_run import RankRun
from .run import first_line

_LOST = ("gloo", "nccl", "ccl", "connection", "peer", "timed out", "timeout", "socket", "store")


def train(run: RankRun, device: Any) -> None:
    """Join the others, train, agree, report; raises RunError."""
    options, placement = run.options, run.placement
    digits = dataset.load(options.data, options.samples, options.seed)
    course = training.plan_course(digits, placement.world, options.epochs)
    run.note(data=training.describe(digits), state="joining")
    try:
        store = _join(run)
        backend = _backend(device.type)
        run.note(backend=backend)
        dist.init_process_group(
            backend, store=store, rank=placement.rank, world_size=placement.world, timeout=timedelta(seconds=_left(run))
        )
        run.say(f"{placement.world} ranks joined, {backend} on {run.record['device']['name']}")
        _train(run, store, device, digits, course)
        _report(run, store)
        dist.destroy_process_group()
    except RuntimeError as fault:  # what torch raises for a lost peer, a timeout, and much else
        text = " ".join(str(fault).split())[:300]
        if any(word in text.lower() for word in _LOST):
            run.record["lost"] = True
            raise RunError(f"the communication failed while {run.record['state']}: {text}") from None
        raise


def _train(run: RankRun, store: Any, device: Any, digits: dataset.Digits, course: training.Course) -> None:
    options, placement = run.options, run.placement
    # each rank starts from weights of its own: that they agree in the end shows that rank 0's were given to all
    torch.manual_seed(options.seed + placement.rank)
    net = training.network().to(device)
    initial = training.checksum(net)
    wrapped = DistributedDataParallel(net, device_ids=None if device.type == "cpu" else [device.index])
    trainer = training.Trainer(wrapped, course)
    first = snapshot.resume(options.snapshot, net, trainer, placement, store)
    run.note(state="training", initial_checksum=initial, resumed_from_epoch=first, samples=0)
    sampler = _sampler(len(digits.train[1]), run)
    images, labels = training.load_pair(digits.train, device)
    began = time.monotonic()
    for epoch in range(first, course.epochs):
        sampler.set_epoch(epoch)
        trainer.train_epoch(images, labels, torch.tensor(list(sampler)).to(device))
        summary = trainer.summary()
        run.note(training=summary, samples=trainer.samples, last_loss=summary["last_loss"])
        run.say(f"epoch {epoch + 1} of {course.epochs}, loss {summary['last_loss']:.4f}")
        if run.leads:
            snapshot.save(options.snapshot, net, trainer, epoch + 1)
    run.record["seconds"]["train"] = round(time.monotonic() - began, 3)
    summary = trainer.summary()
    run.note(state="testing", training=summary, last_loss=summary["last_loss"])
    _test(run, trainer, device, digits)
    run.note(checksum=training.checksum(net))


def _sampler(images: int, run: RankRun) -> Any:
    placement = run.placement
    return DistributedSampler(
        range(images),
        num_replicas=placement.world,
        rank=placement.rank,
        seed=run.options.seed,
        drop_last=True,
    )


def _test(run: RankRun, trainer: training.Trainer, device: Any, digits: dataset.Digits) -> None:
    """Each rank tests its share; the counts are summed over all."""
    images, labels = training.load_pair(digits.test, device)
    mine = slice(run.placement.rank, None, run.placement.world)
    trainer.net = trainer.net.module  # a rank may have one batch more than another: nothing may wait for it
    right, loss = trainer.test(images[mine], labels[mine])
    total = torch.tensor([float(right), loss, float(len(labels[mine]))], device=device)
    dist.all_reduce(total)
    right_all, loss_all, count = total.cpu().tolist()
    run.note(accuracy=right_all / count, test_loss=loss_all / count)
    run.say(f"accuracy {run.record['accuracy']:.4f}")


def _join(run: RankRun) -> Any:
    """Meet at the store and wait until every rank is there, leaving time to say who is not; raises RunError."""
    placement = run.placement
    store = _store(run)
    store.set(f"joined/{placement.rank}", socket.gethostname())
    if run.leads:
        absent = _absent(run, store)
        store.set("absent", json.dumps(absent))
    else:
        store.wait(["absent"], timedelta(seconds=_left(run)))
        absent = json.loads(store.get("absent"))
    if absent:
        run.record["lost"] = True
        _leave(run, store, [rank for rank in range(placement.world) if rank not in absent], 5.0)
        names = ", ".join(str(rank) for rank in absent[:20]) + (", ..." if len(absent) > 20 else "")
        raise RunError(f"{len(absent)} of {placement.world} ranks never joined: rank {names}")
    return store


def _absent(run: RankRun, store: Any) -> List[int]:
    everyone = [f"joined/{rank}" for rank in range(run.placement.world)]
    try:
        store.wait(everyone, timedelta(seconds=_left(run) * 0.9))
        return []
    except RuntimeError:
        pass
    return [rank for rank, key in enumerate(everyone) if not _has(store, key)]


def _has(store: Any, key: str) -> bool:
    try:
        store.wait([key], timedelta(milliseconds=50))
    except RuntimeError:
        return False
    return True


def _store(run: RankRun) -> Any:
    placement, environment = run.placement, os.environ
    limit = timedelta(seconds=_left(run))
    if run.options.rendezvous is not None:
        store = dist.FileStore(run.options.rendezvous, placement.world)
    elif "MASTER_ADDR" in environment and environment.get("MASTER_PORT", "").isdecimal():
        # torchrun's agent holds the store already; everywhere else rank 0 does
        agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        leads = placement.rank == 0 and not agent
        store = dist.TCPStore(host, port, placement.world, leads, timeout=limit, wait_for_workers=False)
    elif placement.world == 1:
        store = dist.HashStore()
    else:
        raise RunError("MASTER_ADDR and MASTER_PORT must say where the ranks meet: the launch script sets them")
    store.set_timeout(limit)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"smoke/{attempt}", store)


def _backend(kind: str) -> str:
    if kind == "cpu":
        return "gloo"
    if kind == "cuda":
        return "nccl"  # RCCL goes by the same name
    has_xccl = getattr(dist, "is_xccl_available", None)
    if has_xccl is not None and has_xccl():
        return "xccl"
    try:
        import_module("oneccl_bindings_for_pytorch")
    except Exception as fault:
        raise RunError(
            f"no backend for xpu: torch has no xccl and oneCCL's bindings fail: {first_line(fault)}"
        ) from None
    return "ccl"


def _report(run: RankRun, store: Any) -> None:
    """Give every rank's record to rank 0."""
    placement = run.placement
    run.note(state="reporting")
    run.record["finished"] = True
    store.set(f"record/{placement.rank}", json.dumps(run.record))
    if run.leads:
        run.gathered = [json.loads(store.get(f"record/{rank}")) for rank in range(placement.world)]
        store.set("gathered", "yes")
    else:
        store.wait(["gathered"], timedelta(seconds=_left(run)))
    _leave(run, store, range(placement.world), _left(run))


def _leave(run: RankRun, store: Any, present: Iterable[int], seconds: float) -> None:
    """Let rank 0 leave last: it may hold the store that the others still ask."""
    if not run.leads:
        store.set(f"left/{run.placement.rank}", "yes")
        return
    try:
        store.wait([f"left/{rank}" for rank in present if rank != 0], timedelta(seconds=seconds))
    except RuntimeError:
        pass  # all that mattered is gathered by now


def _left(run: RankRun) -> float:
    return max(1.0, run.left())
