"""Restarts an app with version probing (KIP-268) member by member under load, the upgrade that
KIP-447's design document relies on.

Members exchange versions as user data of JoinGroup and SyncGroup through a coordinator that ignores
it. The events record what each member does with its version: transactions have an id per task or
per thread, and each offset commit has a generation.
Source: KIP-268; KIP-447 (upgrade path of its document: UPGRADE_FROM, two rolling bounces).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraftsim.clients.events_transactions import (
    MemberStable,
    TransactionBegun,
    TransactionOffsetSent,
)
from kraftsim.clients.rules_group_member import OF_TASKS, OF_THREADS
from kraftsim.lab.workloads.transform_app import Variant
from tools.bench.fencing.harness import FencingHarness, Member, MemberParameters

MEMBERS = 3
RECORDS_BETWEEN = 6
"""The number of records written before each restart, and copied after it."""
TASKS, THREADS = "task", "thread"
BEFORE = MemberParameters(variant=Variant.PER_TASK, is_old=True)
OLD = MemberParameters(variant=Variant.PROBED, is_old=True, latest_version=OF_TASKS)
PINNED = MemberParameters(variant=Variant.PROBED, latest_version=OF_TASKS)
"""The new binary with UPGRADE_FROM: it commits with group metadata, and reports the old version."""
NEW = MemberParameters(variant=Variant.PROBED, latest_version=OF_THREADS)
BY_SETTING = MemberParameters(variant=Variant.PER_THREAD)
"""As shipped: a setting decides, regardless of other members."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounced:
    """The results. `rebalances`: new generations after each restart, in order.

    `mixed`: generations with offset commits by transactional ids of both kinds. `kinds`: those of
    the last generation.
    """

    rebalances: tuple[int, ...]
    mixed: int
    kinds: tuple[str, ...]
    records: int
    doubled: int
    missing: int


def bounced(first: MemberParameters, *restarts: tuple[int, MemberParameters]) -> Bounced:
    """Run three members, and restart them one by one with the given parameters, under load."""
    with FencingHarness(records=RECORDS_BETWEEN, partitions=MEMBERS) as harness:
        members = [Member(harness, f"member-{number}", first) for number in range(MEMBERS)]
        harness.wait(10)
        written, rebalances = RECORDS_BETWEEN, []
        for count, (number, terms) in enumerate(restarts):
            before = _generation(harness)
            harness.run(harness.write(written, written + RECORDS_BETWEEN))
            written += RECORDS_BETWEEN
            members[number].close()
            harness.until(members[number].task.done)
            members[number] = Member(harness, f"member-{number}-{count}", terms)
            harness.wait(10)
            harness.run(harness.write(written, written + RECORDS_BETWEEN))
            written += RECORDS_BETWEEN
            harness.wait(3)
            rebalances.append(_generation(harness) - before)
        for member in members:
            member.is_done = True
        harness.wait(5)
        copies = harness.copies()
        kinds = _kinds(harness)
    return Bounced(
        rebalances=tuple(rebalances),
        mixed=sum(len(each) > 1 for each in kinds.values()),
        kinds=tuple(sorted(kinds[max(kinds)])),
        records=written,
        doubled=sum(count > 1 for count in copies.values()),
        missing=written - len(copies),
    )


def all_to(
    terms: MemberParameters, order: Sequence[int] = (2, 0, 1)
) -> Iterable[tuple[int, MemberParameters]]:
    """Return one rolling bounce."""
    return ((number, terms) for number in order)


def _generation(harness: FencingHarness) -> int:
    return max((event.generation_id for _, event in harness.of(MemberStable)), default=0)


def _kinds(harness: FencingHarness) -> dict[int, set[str]]:
    """Return the kinds of transactional ids that committed offsets in each generation."""
    ids = {event.transaction: event.transactional_id for _, event in harness.of(TransactionBegun)}
    moments = [(t_ms, event.generation_id) for t_ms, event in harness.of(MemberStable)]
    found: dict[int, set[str]] = {}
    for t_ms, event in harness.of(TransactionOffsetSent):
        generation = event.generation_id
        if generation < 0:  # an old member commits without a generation: use the one at that time
            generation = max(
                (number for since_ms, number in moments if since_ms <= t_ms), default=0
            )
        found.setdefault(generation, set()).add(
            THREADS if "-thread-" in ids[event.transaction] else TASKS
        )
    return found
