"""Judge a training: it learnt, on every rank the same, each rank its share, in another order each epoch."""

from __future__ import annotations

from typing import Dict, List

from .checks import Check, Facts, figure, listed, number, show, whole

# A net that learns nothing scores 0.1. Two epochs of 8,000 images reach 0.97 on MNIST and 0.98 on drawn digits.
ACCURACY_FLOORS = {"mnist": 0.95, "drawn": 0.90}
LOSS_FRACTION = 0.5  # the last tenth of the steps against the first tenth
_ORDERED = 4  # samples of a share whose order could hardly come out the same twice


def accuracy(facts: Facts) -> List[Check]:
    """Enough test images were told right."""
    source = facts.at("data", "source")
    floor = ACCURACY_FLOORS.get(source) if isinstance(source, str) else None
    value = number(facts.at("accuracy"))
    ok = floor is not None and value is not None and floor <= value <= 1.0
    limit = f">= {floor}" if floor is not None else f"a floor for {show(source)} digits"
    return [Check("accuracy", ok, figure(facts.at("accuracy")), limit)]


def loss(facts: Facts) -> List[Check]:
    """The loss fell, and was a number at every step."""
    first, last = number(facts.at("training", "first_loss")), number(facts.at("training", "last_loss"))
    ok = first is not None and last is not None and 0 <= last <= LOSS_FRACTION * first
    measured = f"{figure(facts.at('training', 'first_loss'))} to {figure(facts.at('training', 'last_loss'))}"
    broken = whole(facts.at("training", "non_finite"))
    return [
        Check("loss falls", ok, measured, f"to <= {LOSS_FRACTION} of the first"),
        Check("losses finite", broken == 0, show(facts.at("training", "non_finite")), "0 not finite"),
    ]


def checksums(facts: Facts) -> List[Check]:
    """All ranks ended with the same parameters, which are not those that any began with."""
    world, entries = facts.world(), facts.ranks()
    owners: Dict[str, List[str]] = {}
    for entry in entries:
        text = entry.get("checksum")
        owners.setdefault(text if isinstance(text, str) else "", []).append(show(entry.get("rank")))
    known = set(owners) - {""}
    one = len(known) == 1 and "" not in owners and len(entries) == world
    start = {entry.get("initial_checksum") for entry in entries if isinstance(entry.get("initial_checksum"), str)}
    moved = one and not (known & start)
    idle = whole(facts.at("training", "epochs_run")) == 0  # resumed at its end: nothing was left to train
    still = one and not moved and not idle
    measured = f"{len(known)} among {len(entries)} ranks" + (", as before the training" if still else "")
    if len(known) > 1:
        most = max(sorted(known), key=lambda text: len(owners[text]))
        others = [rank for text in sorted(known - {most}) for rank in owners[text]]
        measured += f": rank {listed(others, 8, ', ')} differs from rank {owners[most][0]}"
    return [Check("parameters agree", one and (moved or idle), measured, f"1 among {show(world)} ranks")]


def shares(facts: Facts) -> List[Check]:
    """Every rank trained on its share of the images, less what it had before it was resumed."""
    world, train = facts.world(), whole(facts.at("data", "train"))
    epochs = whole(facts.at("training", "epochs_run"))
    seen = [whole(entry.get("samples")) for entry in facts.ranks()]
    if not world or world < 1 or train is None or epochs is None:
        return [Check("samples", False, show(facts.at("data", "train")), "an equal share for each rank")]
    before = (whole(facts.at("training", "resumed_step")) or 0) * (whole(facts.at("training", "batch")) or 0)
    share = train // world * epochs - before
    lowest = min((count for count in seen if count is not None), default=None)
    ok = len(seen) == world and all(count == share for count in seen)
    return [Check("samples", ok, f"{show(lowest)} at least on {len(seen)} ranks", f"{show(share)} on each of {world}")]


def orders(facts: Facts) -> List[Check]:
    """The sampler gave every rank another order in every epoch, and no two ranks the same."""
    world, train = facts.world(), whole(facts.at("data", "train")) or 0
    epochs = whole(facts.at("training", "epochs_run"))
    seen: Dict[str, str] = {}
    faults = []
    for entry in facts.ranks():
        found = entry.get("orders")
        digests = found if isinstance(found, list) else []
        if len(digests) != epochs:
            faults.append(f"rank {show(entry.get('rank'))} told {len(digests)} orders")
        for epoch, digest in enumerate(digests):
            here = f"rank {show(entry.get('rank'))} epoch {epoch + 1}"
            before = seen.setdefault(show(digest), here)
            if before != here and world and train // world >= _ORDERED:
                faults.append(f"{here} as {before}")
    ok = bool(facts.ranks()) and not faults
    measured = listed(faults) if faults else f"{len(seen)} orders over {show(epochs)} epochs"
    return [Check("reshuffled", ok, measured, "another order for every rank and epoch")]


def rank_losses(facts: Facts) -> List[Check]:
    """Every rank's loss is a number."""
    broken = [show(entry.get("rank")) for entry in facts.ranks() if number(entry.get("last_loss")) is None]
    ok = bool(facts.ranks()) and not broken
    measured = f"not on rank {', '.join(broken[:8])}" if broken else f"on {len(facts.ranks())} ranks"
    return [Check("rank losses finite", ok, measured, "on every rank")]
