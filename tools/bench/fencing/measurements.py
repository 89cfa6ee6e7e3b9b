"""KIP-447's claims on time and correctness, each simulated and measured once.

Times are virtual; a seed always gives the same numbers.
"""

from dataclasses import dataclass

from kraftsim.clients.events_transactions import (
    MembershipLost,
    MemberStable,
    OffsetLearned,
    OffsetsAsked,
    TransactionEnded,
)
from kraftsim.clients.group_consumer import GroupConsumerClient
from kraftsim.clients.rules_transaction_steps import GroupIdentity, TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.lab.workloads.transform_app import Point, Variant
from kraftsim.world.simulated import Host
from protocol.errors import ErrorCode
from tools.bench.fencing.harness import (
    GROUP,
    INPUT,
    OUTPUT,
    PATIENT,
    FencingHarness,
    Member,
    MemberParameters,
)

OLD_RELEASE = "2.4"


@dataclass(frozen=True, kw_only=True, slots=True)
class Takeover:
    """A takeover by another member: its duration, the retriable errors it received, and whether it
    lost its membership.
    """

    milliseconds: int
    retriable_errors: int
    memberships_lost: int


def takeover(
    *,
    dies: bool,
    transaction_ms: int,
    session_ms: int = 6000,
    is_old: bool = False,
    fencing: str = "",
) -> Takeover:
    """End a member with its offsets sent: it crashes, or it ends its transaction and leaves.

    Another one joins at that time.
    """
    with FencingHarness(
        settings={"kraftsim.offset.fencing": fencing} if fencing else {}
    ) as harness:
        first = Member(
            harness, "first", MemberParameters(transaction_ms=transaction_ms, session_ms=session_ms)
        )
        if dies:
            first.dies_at = Point.OFFSETS_SENT
        else:
            harness.until(lambda: harness.first_read_ms("first", 0) is not None)
            harness.run(harness.write(20, 40))
            first.close()
        harness.until(lambda: first.died_ms is not None)
        died_ms = first.died_ms or 0.0
        Member(harness, "next", MemberParameters(session_ms=session_ms, is_old=is_old))
        if not dies:
            harness.run(harness.write(40, 60))
        harness.until(lambda: harness.first_read_ms("next", died_ms) is not None)
        took_ms = (harness.first_read_ms("next", died_ms) or 0.0) - died_ms
        events = [
            event for _, event in harness.of(OffsetLearned) if event.client_id.startswith("next")
        ]
        lost = [
            event for _, event in harness.of(MembershipLost) if event.client_id.startswith("next")
        ]
    return Takeover(
        milliseconds=round(took_ms),
        retriable_errors=sum(event.error_code != 0 for event in events),
        memberships_lost=len(lost),
    )


def aborted_needlessly(pause_ms: int, transaction_ms: int) -> bool:
    """Pause a member within a transaction, without a rebalance; return whether its transaction was
    aborted.
    """
    with FencingHarness() as harness:
        member = Member(
            harness, "first", MemberParameters(transaction_ms=transaction_ms, session_ms=120_000)
        )
        member.transform_worker.pause_at(Point.SENT, pause_ms / 1000)
        harness.until(lambda: any(True for _ in harness.of(TransactionEnded)))
        (_, ended) = next(iter(harness.of(TransactionEnded)))
        return ended.outcome != "committed"


@dataclass(frozen=True, kw_only=True, slots=True)
class ZombieEffects:
    """The effects of a zombie, paused until its partition is reassigned: duplicated records, and
    the responses to its successor.
    """

    doubled: int
    successor_errors: int
    refused: int


def zombie_effects(
    *,
    fencing: str = "",
    point: Point = Point.SENT,
    old_zombie: bool = False,
    old_successor: bool = False,
    variants: tuple[Variant, Variant] = (Variant.PER_THREAD, Variant.PER_THREAD),
    release_name: str = "3.9",
    zookeeper: bool = False,
    settings: dict[str, str] | None = None,
) -> ZombieEffects:
    """Pause a member at a point of its transaction for 12 seconds; the session timeout is 6 s, the
    transaction timeout 20 s.
    """
    events = {**(settings or {}), **({"kraftsim.offset.fencing": fencing} if fencing else {})}
    with FencingHarness(settings=events, release_name=release_name, zookeeper=zookeeper) as harness:
        zombie = Member(
            harness,
            "zombie",
            MemberParameters(transaction_ms=20_000, is_old=old_zombie, variant=variants[0]),
        )
        zombie.transform_worker.pause_at(point, 12.0)
        harness.wait(3)
        successor = Member(
            harness,
            "successor",
            MemberParameters(transaction_ms=20_000, is_old=old_successor, variant=variants[1]),
        )
        harness.wait(18)
        zombie.is_done = successor.is_done = True
        harness.wait(12)
        doubled = harness.doubled()
        learned = [
            event
            for _, event in harness.of(OffsetLearned)
            if event.client_id.startswith("successor")
        ]
        refused = [
            event
            for _, event in harness.of(TransactionEnded)
            if event.client_id.startswith("zombie") and event.outcome != "committed"
        ]
    return ZombieEffects(
        doubled=doubled,
        successor_errors=sum(event.error_code != ErrorCode.NONE for event in learned),
        refused=len(refused),
    )


# The three conditions
# --------------------------------------------------------------------------------------------------


CONDITIONS = (
    "all of them",
    "offsets are committed by the consumer",
    "offsets are kept elsewhere",
    "offsets are sent for no member",
)
"""KIP-447's template of an app, and each of its conditions dropped."""


def doubled_where(condition: str) -> int:
    """Crash an app after it committed its output, or pause it before; return the number of
    duplicated records.
    """
    if condition == "offsets are sent for no member":
        return zombie_effects(old_zombie=True).doubled
    with FencingHarness() as harness:
        elsewhere: dict[int, int] = {}
        for name in ("first", "next"):
            host = harness.simulation.add_host(name)
            dies = name == "first"
            harness.until(
                harness.simulation.spawn(
                    host, _copy_once(harness, host, condition, elsewhere, dies=dies)
                ).done
            )
            harness.wait(10)
        return harness.doubled()


async def _copy_once(
    harness: FencingHarness, host: Host, condition: str, elsewhere: dict[int, int], *, dies: bool
) -> None:
    """Copy all input in one transaction, and commit the offsets; a crash happens before offsets
    outside the transaction are committed.
    """
    world, bootstrap = harness.simulation.world_of(host), harness.cluster.addresses
    producer = TransactionalClient(
        world,
        bootstrap=bootstrap,
        client_id=f"{host.name}-producer",
        settings=TransactionalSettings(transactional_id=host.name, producer=PATIENT),
    )
    await producer.init()
    consumer = GroupConsumerClient(
        world,
        bootstrap=bootstrap,
        client_id=f"{host.name}-consumer",
        settings=harness.group(MemberParameters()),
    )
    await consumer.start()
    records = []
    for _ in range(400):
        records = [
            each
            for each in await consumer.poll()
            if each.offset >= elsewhere.get(each.partition, 0)
        ]
        if records:
            break
    group: GroupIdentity = consumer.group
    if records:
        await producer.begin()
        for record in records:
            await producer.send(OUTPUT, record.partition, record.key, record.value)
        offsets = {where: consumer.position(where) for where in consumer.assigned}
        if condition == "all of them":
            await producer.send_offsets(group, offsets)
        await producer.commit()
        if not dies and condition == "offsets are committed by the consumer":
            await consumer.commit(offsets)
        if not dies and condition == "offsets are kept elsewhere":
            elsewhere.update({where.partition: offset for where, offset in offsets.items()})
    await producer.close()
    await consumer.close(leaves=not dies)


# Old brokers
# --------------------------------------------------------------------------------------------------


def first_commit_to_old_brokers(*, downgrades: bool) -> str:
    """Let a current producer commit offsets with group metadata to a 2.4 broker; return the
    result.
    """
    with FencingHarness(release_name=OLD_RELEASE, zookeeper=True) as harness:
        world = harness.simulation.world_of(harness.client)
        settings = TransactionalSettings(
            transactional_id="x", producer=PATIENT, downgrades_commits=downgrades
        )
        producer = TransactionalClient(
            world, bootstrap=harness.cluster.addresses, client_id="new", settings=settings
        )
        consumer = GroupConsumerClient(
            world,
            bootstrap=harness.cluster.addresses,
            client_id="new-consumer",
            settings=harness.group(MemberParameters()),
        )

        async def commit() -> str:
            await producer.init()
            await consumer.start()
            while not await consumer.poll():
                pass
            await producer.begin()
            try:
                await producer.send_offsets(
                    consumer.group, {where: consumer.position(where) for where in consumer.assigned}
                )
                await producer.commit()
            except (AbortNeeded, ProducerFailed) as refused:
                return refused.error_code.name
            return "committed"

        return harness.run(commit())


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """OffsetFetch requests and new assignments.

    `first`: the assignments that were followed by an OffsetFetch before any read.
    """

    assignments: int
    followed: int
    kept_asked: int


def fetched_after_rebalances(assignor: str) -> Fetched:
    """Let a second member join one that has two partitions; count the OffsetFetch requests of
    each.
    """
    with FencingHarness(partitions=2, records=10) as harness:
        members = [Member(harness, "first", MemberParameters(assignor=assignor))]
        harness.wait(5)
        members.append(Member(harness, "next", MemberParameters(assignor=assignor)))
        harness.wait(10)
        before_ms = harness.now_ms
        harness.run(harness.write(10, 30))
        harness.wait(5)
        for member in members:
            member.is_done = True
        harness.wait(10)
        stable = [
            (t_ms, event)
            for t_ms, event in harness.of(MemberStable)
            if event.group_id == GROUP and event.assignment
        ]
        asked = [
            (t_ms, event) for t_ms, event in harness.of(OffsetsAsked) if event.group_id == GROUP
        ]
        learned = [
            (t_ms, event)
            for t_ms, event in harness.of(OffsetLearned)
            if event.group_id == GROUP and event.topic == INPUT
        ]
        followed = 0
        for t_ms, event in stable:
            later = [
                at_ms
                for at_ms, each in asked
                if each.client_id == event.client_id and t_ms <= at_ms <= before_ms
            ]
            followed += bool(later)
        owned: dict[str, set[str]] = {}
        kept_asked = 0
        for t_ms, event in stable:
            now = set(event.assignment.split(","))
            kept = now & owned.get(event.client_id, set())
            following = min(
                (
                    at_ms
                    for at_ms, each in stable
                    if each.client_id == event.client_id and at_ms > t_ms
                ),
                default=before_ms,
            )
            kept_asked += sum(
                each.client_id == event.client_id
                and t_ms <= at_ms < following
                and f"{each.topic}-{each.partition}" in kept
                for at_ms, each in learned
            )
            owned[event.client_id] = now
    return Fetched(assignments=len(stable), followed=followed, kept_asked=kept_asked)
