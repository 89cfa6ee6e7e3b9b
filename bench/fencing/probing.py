"""Restarts an app with version probing (KIP-268) member by member under load, the upgrade that KIP-447's design document relies on.

Members exchange versions as user data of JoinGroup and SyncGroup through a coordinator that ignores it. The events record what each
member does with its version: transactions have an id per task or per thread, and each offset commit has a generation.
Source: KIP-268; KIP-447 (upgrade path of its document: UPGRADE_FROM, two rolling bounces).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.fencing.lab import FencingLab, Member, Terms
from kraftsim.cluster.copier import Variant
from kraftsim.core.clients.version_probing import OF_TASKS, OF_THREADS
from kraftsim.events.transactional_clients import MemberStable, TransactionBegun, TransactionOffsetSent

MEMBERS = 3
RECORDS_BETWEEN = 6
"""The number of records written before each restart, and copied after it."""
TASKS, THREADS = "task", "thread"
BEFORE = Terms(variant=Variant.PER_TASK, is_old=True)
OLD = Terms(variant=Variant.PROBED, is_old=True, latest_version=OF_TASKS)
PINNED = Terms(variant=Variant.PROBED, latest_version=OF_TASKS)
"""The new binary with UPGRADE_FROM: it commits with group metadata, and reports the old version."""
NEW = Terms(variant=Variant.PROBED, latest_version=OF_THREADS)
BY_SETTING = Terms(variant=Variant.PER_THREAD)
"""As shipped: a setting decides, regardless of other members."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounced:
    """The results. `rebalances`: new generations after each restart, in order.

    `mixed`: generations with offset commits by transactional ids of both kinds. `kinds`: those of the last generation.
    """

    rebalances: tuple[int, ...]
    mixed: int
    kinds: tuple[str, ...]
    records: int
    doubled: int
    missing: int


def bounced(first: Terms, *restarts: tuple[int, Terms]) -> Bounced:
    """Run three members, and restart them one by one with the given parameters, under load."""
    with FencingLab(records=RECORDS_BETWEEN, partitions=MEMBERS) as lab:
        members = [Member(lab, f"member-{number}", first) for number in range(MEMBERS)]
        lab.wait(10)
        written, rebalances = RECORDS_BETWEEN, []
        for count, (number, terms) in enumerate(restarts):
            before = _generation(lab)
            lab.run(lab.write(written, written + RECORDS_BETWEEN))
            written += RECORDS_BETWEEN
            members[number].close()
            lab.until(members[number].task.done)
            members[number] = Member(lab, f"member-{number}-{count}", terms)
            lab.wait(10)
            lab.run(lab.write(written, written + RECORDS_BETWEEN))
            written += RECORDS_BETWEEN
            lab.wait(3)
            rebalances.append(_generation(lab) - before)
        for member in members:
            member.is_done = True
        lab.wait(5)
        copies = lab.copies()
        kinds = _kinds(lab)
    return Bounced(
        rebalances=tuple(rebalances),
        mixed=sum(len(each) > 1 for each in kinds.values()),
        kinds=tuple(sorted(kinds[max(kinds)])),
        records=written,
        doubled=sum(count > 1 for count in copies.values()),
        missing=written - len(copies),
    )


def all_to(terms: Terms, order: Sequence[int] = (2, 0, 1)) -> Iterable[tuple[int, Terms]]:
    """Return one rolling bounce."""
    return ((number, terms) for number in order)


def _generation(lab: FencingLab) -> int:
    return max((event.generation_id for _, event in lab.of(MemberStable)), default=0)


def _kinds(lab: FencingLab) -> dict[int, set[str]]:
    """Return the kinds of transactional ids that committed offsets in each generation."""
    ids = {event.transaction: event.transactional_id for _, event in lab.of(TransactionBegun)}
    moments = [(t_ms, event.generation_id) for t_ms, event in lab.of(MemberStable)]
    found: dict[int, set[str]] = {}
    for t_ms, event in lab.of(TransactionOffsetSent):
        generation = event.generation_id
        if generation < 0:  # an old member commits without a generation: use the one at that time
            generation = max((number for since_ms, number in moments if since_ms <= t_ms), default=0)
        found.setdefault(generation, set()).add(THREADS if "-thread-" in ids[event.transaction] else TASKS)
    return found
