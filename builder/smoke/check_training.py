"""Check a training: it learned, all ranks agree, and each rank had its share in a new order every epoch."""

from __future__ import annotations

from typing import Dict, List

from .checks import Check, ResultView, join_limited, show, to_figure, to_integer, to_number

# A net that learns nothing scores 0.1. Two epochs of 8,000 images reach 0.97 on MNIST and 0.98 on drawn digits.
ACCURACY_FLOORS = {"mnist": 0.95, "drawn": 0.90}
LOSS_FRACTION = 0.5  # the last tenth of the steps against the first tenth
_ORDERED = 4  # samples of a share whose order is unlikely to repeat by chance


def check_accuracy(facts: ResultView) -> List[Check]:
    """Check the share of test images that were recognized."""
    source = facts.find("data", "source")
    floor = ACCURACY_FLOORS.get(source) if isinstance(source, str) else None
    value = to_number(facts.find("accuracy"))
    ok = floor is not None and value is not None and floor <= value <= 1.0
    limit = f">= {floor}" if floor is not None else f"a floor for {show(source)} digits"
    return [Check("accuracy", ok, to_figure(facts.find("accuracy")), limit)]


def check_loss(facts: ResultView) -> List[Check]:
    """Check that the loss fell and was finite at every step."""
    first, last = to_number(facts.find("training", "first_loss")), to_number(facts.find("training", "last_loss"))
    ok = first is not None and last is not None and 0 <= last <= LOSS_FRACTION * first
    measured = f"{to_figure(facts.find('training', 'first_loss'))} to {to_figure(facts.find('training', 'last_loss'))}"
    broken = to_integer(facts.find("training", "non_finite"))
    return [
        Check("loss falls", ok, measured, f"to <= {LOSS_FRACTION} of the first"),
        Check("losses finite", broken == 0, show(facts.find("training", "non_finite")), "0 not finite"),
    ]


def check_checksums(facts: ResultView) -> List[Check]:
    """Check that all ranks ended with the same parameters, different from those that any started with."""
    world, entries = facts.count_expected_ranks(), facts.list_ranks()
    owners: Dict[str, List[str]] = {}
    for entry in entries:
        text = entry.get("checksum")
        owners.setdefault(text if isinstance(text, str) else "", []).append(show(entry.get("rank")))
    known = set(owners) - {""}
    one = len(known) == 1 and "" not in owners and len(entries) == world
    start = {entry.get("initial_checksum") for entry in entries if isinstance(entry.get("initial_checksum"), str)}
    moved = one and not (known & start)
    idle = to_integer(facts.find("training", "epochs_run")) == 0  # resumed at its end, without any training left
    still = one and not moved and not idle
    measured = f"{len(known)} among {len(entries)} ranks" + (", as before the training" if still else "")
    if len(known) > 1:
        most = max(sorted(known), key=lambda text: len(owners[text]))
        others = [rank for text in sorted(known - {most}) for rank in owners[text]]
        measured += f": rank {join_limited(others, 8, ', ')} differs from rank {owners[most][0]}"
    return [Check("parameters agree", one and (moved or idle), measured, f"1 among {show(world)} ranks")]


def check_shares(facts: ResultView) -> List[Check]:
    """Check that every rank trained on its share of the images, less those before a resume."""
    world, train = facts.count_expected_ranks(), to_integer(facts.find("data", "train"))
    epochs = to_integer(facts.find("training", "epochs_run"))
    seen = [to_integer(entry.get("samples")) for entry in facts.list_ranks()]
    if not world or world < 1 or train is None or epochs is None:
        return [Check("samples", False, show(facts.find("data", "train")), "an equal share for each rank")]
    before = (to_integer(facts.find("training", "resumed_step")) or 0) * (
        to_integer(facts.find("training", "batch")) or 0
    )
    share = train // world * epochs - before
    lowest = min((count for count in seen if count is not None), default=None)
    ok = len(seen) == world and all(count == share for count in seen)
    return [Check("samples", ok, f"{show(lowest)} at least on {len(seen)} ranks", f"{show(share)} on each of {world}")]


def check_orders(facts: ResultView) -> List[Check]:
    """Check that the sampler gave every rank another order in every epoch."""
    world, train = facts.count_expected_ranks(), to_integer(facts.find("data", "train")) or 0
    epochs = to_integer(facts.find("training", "epochs_run"))
    seen: Dict[str, str] = {}
    faults = []
    for entry in facts.list_ranks():
        found = entry.get("orders")
        digests = found if isinstance(found, list) else []
        if len(digests) != epochs:
            faults.append(f"rank {show(entry.get('rank'))} reported {len(digests)} orders")
        for epoch, digest in enumerate(digests):
            here = f"rank {show(entry.get('rank'))} epoch {epoch + 1}"
            before = seen.setdefault(show(digest), here)
            if before != here and world and train // world >= _ORDERED:
                faults.append(f"{here} as {before}")
    ok = bool(facts.list_ranks()) and not faults
    measured = join_limited(faults) if faults else f"{len(seen)} orders over {show(epochs)} epochs"
    return [Check("reshuffled", ok, measured, "another order for every rank and epoch")]


def check_rank_losses(facts: ResultView) -> List[Check]:
    """Check that every rank's loss is finite."""
    broken = [show(entry.get("rank")) for entry in facts.list_ranks() if to_number(entry.get("last_loss")) is None]
    ok = bool(facts.list_ranks()) and not broken
    measured = f"not on rank {', '.join(broken[:8])}" if broken else f"on {len(facts.list_ranks())} ranks"
    return [Check("rank losses finite", ok, measured, "on every rank")]
