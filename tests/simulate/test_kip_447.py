"""The statements of KIP-447's document, one by one, in virtual time; `make bench ARGS=fencing`
prints the same runs as tables.
Source: KIP-447.
"""

from collections.abc import Callable

import pytest

from kraftsim.clients.events import ClientStarted
from kraftsim.clients.group_consumer import (
    CoordinatorUnavailable,
    GenericConsumer,
    OffsetsPending,
)
from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_producer_variants import DesignDocumentProducer
from kraftsim.clients.rules_transaction_steps import GroupIdentity, TransactionalSettings
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.clients.transactional_producer import TransactionalClient
from kraftsim.lab.workloads.transform_app import Point, TransformSettings, Variant
from tools.bench.fencing.harness import (
    INPUT,
    OUTPUT,
    PATIENT,
    RECORDS,
    FencingHarness,
    Member,
    MemberParameters,
)
from tools.bench.fencing.measurements import (
    CONDITIONS,
    aborted_needlessly,
    doubled_where,
    fetched_after_rebalances,
    first_commit_to_old_brokers,
    takeover,
    zombie_effects,
)

SESSION_MS, SCAN_MS = 6000, 1000


@pytest.mark.parametrize(("fencing", "doubled"), [("", 0), ("document", 0), ("none", 20)])
def test_member_that_resumes_too_late_is_fenced_or_duplicates_everything(
    fencing: str, doubled: int, figures: Callable[..., None]
) -> None:
    """By its generation.

    447-06, 447-08, 447-27: partitions move between producers that never initialise again.
    """
    found = zombie_effects(fencing=fencing)
    assert (found.doubled, found.refused) == (doubled, int(not doubled))
    figures(
        records=RECORDS,
        **{
            f"doubled_{fencing or 'shipped'}": found.doubled,
            f"refused_{fencing or 'shipped'}": found.refused,
        },
    )


@pytest.mark.parametrize(("fencing", "doubled"), [("", 20), ("document", 0)])
def test_old_consumer_reads_an_unstable_offset_unless_blocked(
    fencing: str, doubled: int, figures: Callable[..., None]
) -> None:
    """447-12, 447-09: a paused member has sent its offsets and commits when it resumes, which its
    generation does not prevent.
    """
    found = zombie_effects(point=Point.OFFSETS_SENT, old_successor=True, fencing=fencing)
    assert found.doubled == doubled and (found.successor_errors > 10) is not bool(doubled)
    figures(
        records=RECORDS,
        **{
            f"old_doubled_{fencing or 'shipped'}": found.doubled,
            f"held_off_{fencing or 'shipped'}": found.successor_errors,
        },
    )


def test_dead_producers_transaction_delays_its_successor(figures: Callable[..., None]) -> None:
    """447-10, 447-15: by the transaction timeout and the coordinator's check interval, or by a
    session if that is longer. A producer that ends its transaction causes no delay.
    """
    timeout_ms = 10_000
    dead, short, good = (
        takeover(dies=True, transaction_ms=timeout_ms),
        takeover(dies=True, transaction_ms=1000),
        takeover(dies=False, transaction_ms=timeout_ms),
    )
    assert (
        timeout_ms <= dead.milliseconds <= timeout_ms + SCAN_MS + 500 and dead.retriable_errors > 10
    )
    assert (
        SESSION_MS - SESSION_MS // 4 <= short.milliseconds <= SESSION_MS + 500
        and not short.retriable_errors
    )
    assert good.milliseconds < 1000 and not good.retriable_errors
    figures(
        timeout_ms=timeout_ms,
        session_ms=SESSION_MS,
        dead_ms=dead.milliseconds,
        asked_meanwhile=dead.retriable_errors,
        short_timeout_ms=short.milliseconds,
        ended_ms=good.milliseconds,
    )


def test_member_waiting_for_offsets_beyond_its_session_stays_a_member(
    figures: Callable[..., None],
) -> None:
    """447-17: heartbeats continue in parallel."""
    session_ms = 5000
    found = takeover(dies=True, transaction_ms=20_000, session_ms=session_ms)
    assert found.milliseconds > 3 * session_ms and found.memberships_lost == 0
    figures(
        blocked_ms=found.milliseconds,
        blocked_session_ms=session_ms,
        retries=found.retriable_errors,
        memberships_lost=found.memberships_lost,
    )


def test_short_transaction_timeout_aborts_a_merely_paused_producer(
    figures: Callable[..., None],
) -> None:
    """447-16."""
    found = {
        (pause, timeout): aborted_needlessly(pause, timeout)
        for pause, timeout in ((500, 1000), (5000, 1000), (5000, 10_000), (30_000, 10_000))
    }
    assert [each for each, is_aborted in found.items() if is_aborted] == [
        (5000, 1000),
        (30_000, 10_000),
    ]
    figures(
        **{
            f"aborted_{pause}_{timeout}": is_aborted
            for (pause, timeout), is_aborted in found.items()
        }
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_dropped_condition_duplicates_records(
    condition: str, figures: Callable[..., None]
) -> None:
    """447-21, 447-20."""
    doubled = doubled_where(condition)
    assert doubled == (0 if condition == CONDITIONS[0] else 20)
    figures(
        records=RECORDS,
        **{
            "doubled_with_all"
            if condition == CONDITIONS[0]
            else f"doubled_without_{CONDITIONS.index(condition)}": doubled
        },
    )


@pytest.mark.parametrize(
    ("downgrades", "outcome"), [(True, "committed"), (False, "UNSUPPORTED_VERSION")]
)
def test_older_broker_gets_commits_without_a_member_or_none(
    downgrades: bool, outcome: str, figures: Callable[..., None]
) -> None:
    """447-31: the producer detects it by itself; no version is fenced."""
    assert first_commit_to_old_brokers(downgrades=downgrades) == outcome
    figures(**{"downgrading" if downgrades else "not_downgrading": outcome})


def test_brokers_fence_since_2_5_at_any_inter_broker_protocol(figures: Callable[..., None]) -> None:
    """447-35: inter.broker.protocol.version makes no difference, the release does."""
    level = "2.3"
    found = [
        zombie_effects(
            release_name=name, zookeeper=True, settings={"inter.broker.protocol.version": level}
        ).doubled
        for name in ("2.4", "2.5")
    ]
    assert found == [20, 0]
    figures(records=RECORDS, level=level, doubled_2_4=found[0], doubled_2_5=found[1])


def test_mixed_task_and_thread_producers_duplicate_unless_members_are_named(
    figures: Callable[..., None],
) -> None:
    """447-33, 447-38: the first bounce makes them name their member, the second changes them from
    tasks to threads.
    """
    variants = (Variant.PER_TASK, Variant.PER_THREAD)
    unnamed, named = (
        zombie_effects(old_zombie=is_old, variants=variants).doubled for is_old in (True, False)
    )
    assert (unnamed, named) == (20, 0)
    figures(records=RECORDS, doubled_naming_none=unnamed, doubled_naming_their_member=named)


@pytest.mark.parametrize(
    ("assignor", "asks_for_all"), [("range", True), ("cooperative-sticky", False)]
)
def test_offsets_are_fetched_after_a_rebalance_and_cooperatively_only_new_ones(
    assignor: str, asks_for_all: bool, figures: Callable[..., None]
) -> None:
    """447-23: a member that keeps a partition does not fetch its offset again."""
    found = fetched_after_rebalances(assignor)
    assert found.followed >= 2 and bool(found.kept_asked) is asks_for_all
    figures(
        **{
            f"assignments_{assignor}".replace("-", "_"): found.assignments,
            f"followed_{assignor}".replace("-", "_"): found.followed,
            f"kept_{assignor}".replace("-", "_"): found.kept_asked,
        }
    )


def test_fenced_producer_restarts_in_the_kip_text_and_continues_as_shipped(
    figures: Callable[..., None],
) -> None:
    """447-29: one more producer each time."""
    started = {}
    for rules in (DesignDocumentProducer, TransactionalProducer):
        with FencingHarness() as harness:
            zombie = Member(harness, "zombie", MemberParameters(transaction_ms=20_000, rules=rules))
            zombie.transform_worker.pause_at(Point.SENT, 12.0)
            harness.wait(3)
            other = Member(harness, "successor", MemberParameters())
            harness.wait(14)
            zombie.is_done = other.is_done = True
            harness.wait(3)
            started[rules] = sum(
                event.client_id.startswith("zombie") for _, event in harness.of(ClientStarted)
            )
    assert started[DesignDocumentProducer] > started[TransactionalProducer] == 2
    figures(**{f"clients_{rules.__name__}": count for rules, count in started.items()})


# The consumer that was left open
# --------------------------------------------------------------------------------------------------


def test_application_with_its_own_consumer_retries_on_pending_offsets(
    figures: Callable[..., None],
) -> None:
    """447-39, 447-40: generation, offsets of all partitions, and waiting for rebalances are its
    responsibility; so are both errors.
    """
    with FencingHarness() as harness:
        dying = Member(harness, "first", MemberParameters(transaction_ms=5000, session_ms=2000))
        dying.dies_at = Point.OFFSETS_SENT
        harness.until(lambda: dying.died_ms is not None)
        errors: list[str] = []
        host = harness.simulation.add_host("generic")
        world, bootstrap = harness.simulation.world_of(host), harness.cluster.addresses
        consumer = GenericConsumer(
            world,
            bootstrap=bootstrap,
            client_id="generic",
            settings=harness.group(MemberParameters(session_ms=2000)),
        )
        settings = TransactionalSettings(transactional_id="generic", producer=PATIENT)
        producer = TransactionalClient(
            world, bootstrap=bootstrap, client_id="generic-producer", settings=settings
        )

        async def copy() -> None:
            await producer.init()
            await consumer.start()
            done = 0
            while done < 20:
                if not await consumer.block_on_rebalance(1000):
                    errors.append("not settled")
                    continue
                try:
                    offsets = await consumer.fetch_offsets()
                except (OffsetsPending, CoordinatorUnavailable) as wait:
                    errors.append(type(wait).__name__)
                    continue
                assert offsets == {TopicPartition(INPUT, 0): -1}
                group = GroupIdentity("copiers", consumer.generation_id(), consumer.group.member_id)
                while records := await consumer.poll():
                    await producer.begin()
                    for record in records:
                        await producer.send(OUTPUT, record.partition, record.key, record.value)
                    await producer.send_offsets(
                        group, {where: consumer.position(where) for where in consumer.assigned}
                    )
                    await producer.commit()
                    done += len(records)
                    harness.simulation.kill("broker-1")
                    harness.simulation.restart("broker-1")
            while "CoordinatorUnavailable" not in errors:
                try:
                    await consumer.fetch_offsets()
                except CoordinatorUnavailable as wait:
                    errors.append(type(wait).__name__)

        harness.until(harness.simulation.spawn(host, copy()).done)
        assert {"OffsetsPending", "CoordinatorUnavailable"} <= set(errors)
        harness.wait(10)
        assert sorted(harness.copies().values()) == [1] * 20
        figures(
            records=RECORDS,
            copied_once=sum(count == 1 for count in harness.copies().values()),
            pending=errors.count("OffsetsPending") > 0,
            unavailable="CoordinatorUnavailable" in errors,
        )


# Version probing
# --------------------------------------------------------------------------------------------------


def test_every_task_has_its_own_transactional_id() -> None:
    """A member that reads two topics would fence itself with one id for both partitions 0; the ids
    of the input are those that `transaction_version_upgrade` expects.
    """
    settings = TransformSettings(
        input_topic=INPUT, output_topic=OUTPUT, group=MemberSettings(group_id="g", topics=(INPUT,))
    )
    assert [
        settings.id_of_task(TopicPartition(topic, partition))
        for topic, partition in ((INPUT, 0), (INPUT, 1), ("side", 0))
    ] == ["copy-task-0", "copy-task-1", "copy-task-side-0"]
