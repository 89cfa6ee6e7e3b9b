"""Partition changes: the record for every change, reassignments, placement, and the indexes.

tests/apache_kafka/test_partition_rules.py checks the same rules against Apache Kafka's controller.
Source: PartitionChangeBuilder, PartitionReassignmentReplicas, StripedReplicaPlacer, BrokersToIsrs.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.core.decision import Refusal
from kraftsim.core.timeline import Journal
from kraftsim.metadata.rules_partition_changes import (
    ChangeRules,
    Election,
    EligibleLeaderRules,
    PartitionTarget,
    Reassignment,
    changed_partition,
    reassignment_to,
    reverted,
)
from kraftsim.metadata.rules_registrations import (
    BrokerRegistration,
    PartitionRegistration,
    partition_of,
    partition_record,
)
from kraftsim.metadata.rules_topic_table import TopicTable, place_replicas
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.errors import ErrorCode
from protocol.metadata.topics import PartitionChangeRecord

HERE, NEW = b"here".rjust(16), b"new".rjust(16)
LEVEL = MetadataLevel(21)


def partition(
    replicas: str = "123",
    isr: str = "123",
    leader: int = 1,
    removing: str = "",
    adding: str = "",
    recovering: int = 0,
) -> PartitionRegistration:
    """Return a partition whose replicas are the digits of a string."""
    return PartitionRegistration(
        replicas=digits(replicas),
        directories=(HERE,) * len(replicas),
        isr=digits(isr),
        removing_replicas=digits(removing),
        adding_replicas=digits(adding),
        leader=leader,
        leader_recovery_state=recovering,
        leader_epoch=5,
        partition_epoch=7,
    )


def digits(text: str) -> tuple[int, ...]:
    return tuple(int(digit) for digit in text)


def change(
    before: PartitionRegistration,
    target: PartitionTarget,
    election: Election,
    active: str,
    level: MetadataLevel = LEVEL,
) -> str:
    """Return a change as text: only the fields that change."""
    rules = ChangeRules(
        level=level,
        election=election,
        may_lead=lambda replica: str(replica) in active,
        default_directory=lambda replica: NEW,
    )
    record = changed_partition(before, target, rules)
    if record is None:
        return ""
    defaults = PartitionChangeRecord()
    names = (
        "leader",
        "isr",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "leader_recovery_state",
        "directories",
    )
    return " ".join(
        f"{name}={_short(getattr(record, name))}"
        for name in names
        if getattr(record, name) != getattr(defaults, name)
    )


def _short(value: object) -> str:
    return (
        "".join(
            part.decode().strip()[0] if isinstance(part, bytes) else str(part) for part in value
        )
        if isinstance(value, list)
        else str(value)
    )


ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN
AS_IS = PartitionTarget()


def isr(members: str) -> PartitionTarget:
    return PartitionTarget(isr=digits(members))


@pytest.mark.parametrize(
    ("before", "target", "election", "active", "expected"),
    [
        (partition(), AS_IS, ONLINE, "123", ""),
        # a broker leaves: the next replica in order becomes leader; the last ISR member stays
        # though there is no leader
        (partition(), isr("23"), ONLINE, "23", "leader=2 isr=23"),
        (partition(), isr("12"), ONLINE, "12", "isr=12"),
        (partition(isr="1"), isr(""), ONLINE, "23", "leader=-1"),
        (partition(isr="1", leader=-1), isr(""), ONLINE, "23", ""),
        (partition(isr="1"), isr(""), UNCLEAN, "23", "leader=2 isr=2 leader_recovery_state=1"),
        (partition(isr="1", recovering=1), isr(""), UNCLEAN, "3", "leader=3 isr=3"),
        (partition(isr="1"), isr(""), UNCLEAN, "", "leader=-1"),
        # a broker returns
        (partition(isr="1", leader=-1), AS_IS, ONLINE, "1", "leader=1"),
        (partition(isr="1", leader=-1), AS_IS, ONLINE, "2", ""),
        (
            partition(isr="1", leader=-1),
            AS_IS,
            UNCLEAN,
            "2",
            "leader=2 isr=2 leader_recovery_state=1",
        ),
        # elections
        (partition(leader=2), AS_IS, ONLINE, "123", ""),
        (partition(leader=2), AS_IS, PREFERRED, "123", "leader=1"),
        (partition(leader=2), AS_IS, PREFERRED, "23", ""),
        (partition(isr="23", leader=2), AS_IS, PREFERRED, "123", ""),
        (partition(isr="23", leader=2), AS_IS, PREFERRED, "3", "leader=3"),
        # a leader requests another ISR, in its own order, or has recovered
        (partition(isr="1"), isr("321"), ONLINE, "123", "isr=321"),
        (
            partition(isr="1", recovering=1),
            PartitionTarget(leader_recovery_state=0),
            ONLINE,
            "123",
            "leader_recovery_state=0",
        ),
        # reassignments: started, completed by an ISR change, completed immediately, cancelled
        (
            partition(),
            PartitionTarget(replicas=digits("4123"), adding_replicas=(4,)),
            ONLINE,
            "1234",
            "replicas=4123 adding_replicas=4 directories=nhhh",
        ),
        (
            partition("4123", adding="4", removing="123"),
            isr("1234"),
            ONLINE,
            "1234",
            "leader=4 isr=4 replicas=4 adding_replicas= removing_replicas= directories=h",
        ),
        (partition("4123", adding="4", removing="3"), isr("134"), ONLINE, "1234", "isr=134"),
        (
            partition("4123", adding="4", removing="3"),
            isr("1234"),
            ONLINE,
            "1234",
            "leader=1 isr=124 replicas=412 adding_replicas= removing_replicas= directories=hhh",
        ),
        (partition(), PartitionTarget(replicas=digits("321")), ONLINE, "123", "replicas=321"),
        (
            partition(),
            PartitionTarget(replicas=digits("213"), removing_replicas=(3,)),
            ONLINE,
            "123",
            "leader=1 isr=12 replicas=21 directories=hh",
        ),
        (
            partition("4123", isr="124", leader=4, adding="4"),
            PartitionTarget(
                isr=digits("12"), replicas=digits("123"), adding_replicas=(), removing_replicas=()
            ),
            ONLINE,
            "1234",
            "leader=1 isr=12 replicas=123 adding_replicas= directories=hhh",
        ),
        # directories
        (partition(), PartitionTarget(directories={2: NEW}), ONLINE, "123", "directories=hnh"),
        (partition(), PartitionTarget(directories={2: HERE}), ONLINE, "123", ""),
    ],
)
def test_change_record_contains_only_what_changes(
    before: PartitionRegistration,
    target: PartitionTarget,
    election: Election,
    active: str,
    expected: str,
) -> None:
    """Naming a leader starts a leader epoch, so the leader is named only if required."""
    assert change(before, target, election, active) == expected


@pytest.mark.parametrize(
    ("level", "target", "election", "expected"),
    [
        (
            11,
            isr("12"),
            ONLINE,
            "leader=1 isr=12",
        ),  # 3.5: every ISR shrink bumps the leader epoch (KAFKA-15021)
        (12, isr("12"), ONLINE, "isr=12"),
        (
            16,
            PartitionTarget(replicas=digits("4123"), adding_replicas=(4,)),
            ONLINE,
            "replicas=4123 adding_replicas=4",
        ),  # no directories
        (2, isr("4"), UNCLEAN, "leader=2 isr=2"),  # no recovery of leaders
    ],
)
def test_older_levels_write_different_records(
    level: int, target: PartitionTarget, election: Election, expected: str
) -> None:
    """metadata.version decides which fields a record may have."""
    active = "23" if election is UNCLEAN else "1234"
    assert change(partition(), target, election, active, MetadataLevel(level)) == expected


def test_partition_round_trips_through_its_record() -> None:
    """At levels without directories they are zero, as readers without the field see them."""
    whole = partition("4123", isr="14", leader=4, adding="4", removing="3", recovering=1)
    assert partition_of(partition_record(b"t" * 16, 3, whole, LEVEL)) == whole
    assert set(
        partition_of(partition_record(b"t" * 16, 3, whole, MetadataLevel(16))).directories
    ) == {bytes(16)}


@pytest.mark.parametrize(
    ("target", "current", "replicas", "adding", "removing"),
    [
        ("123", "123", "123", "", ""),
        ("321", "123", "321", "", ""),
        ("45", "213", "45123", "45", "123"),
        ("14", "132", "1423", "4", "23"),
    ],
)
def test_reassignment_keeps_all_replicas_until_it_completes(
    target: str, current: str, replicas: str, adding: str, removing: str
) -> None:
    """The target replicas first, in their order; then the removed replicas by broker id."""
    move = reassignment_to(digits(target), digits(current))
    assert (move.replicas, move.adding, move.removing, move.target) == (
        digits(replicas),
        digits(adding),
        digits(removing),
        digits(target),
    )


@pytest.mark.parametrize(
    ("members", "done"),
    [("123", None), ("1234", None), ("45", "45"), ("123456", None), ("12345", "45"), ("", None)],
)
def test_reassignment_completes_when_all_remaining_replicas_are_in_sync(
    members: str, done: str | None
) -> None:
    """Removed replicas do not count, and no others may be in the ISR."""
    move = reassignment_to(digits("45"), digits("123"))
    found = move.target_isr(
        tuple(member for member in digits(members) if member != 6), waits_for_all=True
    )
    assert found == (None if done is None else digits(done)) or members == "123456"


@pytest.mark.parametrize(
    ("target", "current", "members", "done"),
    [
        ("1234", "123", "134", "134"),
        ("234", "123", "34", "34"),
        ("234", "123", "23", None),
        ("24", "123", "14", None),
        ("24", "123", "24", "24"),
    ],
)
def test_later_releases_wait_only_for_added_replicas_unless_it_shrinks(
    target: str, current: str, members: str, done: str | None
) -> None:
    """A remaining replica that was not in sync before need not be in sync afterwards
    (KAFKA-19975).
    """
    move = reassignment_to(digits(target), digits(current))
    assert move.target_isr(digits(members), waits_for_all=False) == (
        None if done is None else digits(done)
    )


def test_reassignment_that_takes_back_a_new_replica_is_never_completed_since_4_3() -> None:
    """3214 -> 243 while 1 is being added: 1 becomes a removing replica, and stays an adding one.

    Apache Kafka sets the adding replicas of a reassignment only if there are any. Since KAFKA-19975
    all adding replicas must stay in the ISR, also one that is removed; from 3.8 to 4.2 it was
    enough that all of the target are. ReplicationControlManager.changePartitionReassignment,
    PartitionReassignmentReplicas.maybeCompleteReassignment.
    """
    move = reassignment_to(digits("243"), digits("3214"))
    assert (move.adding, move.removing) == ((), (1,))
    stuck = Reassignment(replicas=move.replicas, removing=move.removing, adding=(1,))
    assert stuck.target_isr(digits("2341"), waits_for_all=True) == digits("234")
    assert stuck.target_isr(digits("2341"), waits_for_all=False) is None


# Eligible leader replicas
# --------------------------------------------------------------------------------------------------


def eligible(
    before: PartitionRegistration,
    target: PartitionTarget,
    active: str,
    election: Election = ONLINE,
    minimum: int = 2,
    unclean: str = "",
) -> str:
    """Return a change as text where replicas that left the ISR may lead (KIP-966)."""
    rules = ChangeRules(
        level=MetadataLevel(27),
        election=election,
        may_lead=lambda replica: str(replica) in active,
        default_directory=lambda replica: NEW,
        eligible=EligibleLeaderRules(
            min_in_sync_replicas=minimum, shut_down_uncleanly=digits(unclean)
        ),
    )
    record = changed_partition(before, target, rules)
    names = ("leader", "isr", "eligible_leader_replicas", "last_known_elr", "leader_recovery_state")
    shown = {
        name: getattr(record, name)
        for name in names
        if record is not None and getattr(record, name) != getattr(PartitionChangeRecord(), name)
    }
    return " ".join(f"{SHORT[name]}={_short(value)}" for name, value in shown.items())


SHORT = {
    "leader": "leader",
    "isr": "isr",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last",
    "leader_recovery_state": "recovery",
}


def left(elr: str, isr: str = "", leader: int = -1, last: str = "") -> PartitionRegistration:
    """Return a partition that some replicas have left."""
    return replace(
        partition(isr=isr, leader=leader),
        eligible_leader_replicas=digits(elr),
        last_known_elr=digits(last),
    )


@pytest.mark.parametrize(
    ("before", "target", "active", "options", "expected"),
    [
        # a replica that leaves an ISR below the minimum is eligible; above the minimum it is not
        (partition(), isr("23"), "23", {}, "leader=2 isr=23"),
        (partition(isr="12"), isr("1"), "13", {}, "isr=1 elr=2"),
        (partition(isr="1"), isr(""), "23", {}, "leader=-1 isr= elr=1 last=1"),
        (left("2", isr="1", leader=1), isr(""), "3", {}, "leader=-1 isr= elr=12 last=1"),
        (left("2", isr="1", leader=1), isr(""), "23", {}, "leader=2 isr=2 elr=1"),
        (left("3", isr="1", leader=1), isr("12"), "123", {}, "isr=12 elr="),
        # one of them returns, and becomes leader: nothing is lost
        (left("12", last="1"), AS_IS, "2", {}, "leader=2 isr=2 elr=1 last="),
        (left("12", last="1"), AS_IS, "3", {}, ""),
        (
            left("12", last="1"),
            AS_IS,
            "3",
            {"election": UNCLEAN},
            "leader=3 isr=3 elr= last= recovery=1",
        ),
        (left("12", last="1"), AS_IS, "12", {"election": PREFERRED}, "leader=1 isr=1 elr=2 last="),
        # an unclean shutdown removes it; then only the last known leader may lead, and may lack
        # records
        (left("12", last="1"), AS_IS, "3", {"unclean": "1"}, "elr=2"),
        (left("2", last="1"), AS_IS, "3", {"unclean": "2"}, "elr="),
        (left("", last="1"), AS_IS, "12", {}, "leader=1 isr=1 last= recovery=1"),
        (left("", last="1"), AS_IS, "23", {}, ""),
        (partition(isr="1"), isr(""), "2", {"unclean": "1"}, "leader=-1 isr= last=1"),
    ],
)
def test_eligible_leader_replica_may_lead_if_nothing_was_acknowledged_without_it(
    before: PartitionRegistration,
    target: PartitionTarget,
    active: str,
    options: dict[str, Any],
    expected: str,
) -> None:
    """The minimum is 2 here. Source: KIP-966; the scenarios of
    tests/apache_kafka/test_partition_rules.py compare it with Apache Kafka 4.1 and 4.4.
    """
    assert eligible(before, target, active, **options) == expected


def test_eligible_leader_replicas_are_cleared_when_the_feature_is_disabled() -> None:
    """Its level can be downgraded to 0."""
    rules = ChangeRules(
        level=MetadataLevel(27),
        election=ONLINE,
        may_lead=lambda replica: replica == 1,
        default_directory=lambda replica: NEW,
    )
    record = changed_partition(left("2", isr="1", leader=1), AS_IS, rules)
    assert record is not None and record.eligible_leader_replicas == [] and record.isr is None


def test_cancelled_reassignment_with_only_added_replicas_in_sync_is_unclean() -> None:
    """The first old replica then counts as in sync; unclean election must be allowed."""
    back = reverted(partition("45123", isr="1245", adding="45", removing="123"))
    assert (back.replicas, back.isr, back.is_unclean) == (digits("123"), digits("12"), False)
    back = reverted(partition("45123", isr="45", leader=4, adding="45", removing="123"))
    assert (back.replicas, back.isr, back.is_unclean) == (digits("123"), digits("1"), True)


# Placement
# --------------------------------------------------------------------------------------------------


def broker(broker_id: int, rack: str | None = None, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=0,
        incarnation_id=bytes(16),
        listeners=(),
        features=(),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
    )


brokers = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
)


@settings(max_examples=200)
@given(brokers, st.integers(1, 5), st.integers(1, 40), st.integers(0, 1000))
def test_replicas_are_spread_and_the_first_is_active(
    drawn: list[tuple[str | None, bool]], factor: int, partitions: int, seed: int
) -> None:
    """No broker twice in a partition, as many racks as possible, inactive brokers only if the
    active ones do not suffice; the seed decides the rest.
    """
    all_brokers = [broker(number, rack, fenced) for number, (rack, fenced) in enumerate(drawn)]
    placement = place_replicas(partitions, factor, all_brokers, random.Random(seed))
    serving = [each.broker_id for each in all_brokers if not each.fenced]
    if not serving or factor > len(all_brokers):
        assert placement == Refusal(ErrorCode.INVALID_REPLICATION_FACTOR)
        return
    assert not isinstance(placement, Refusal) and len(placement) == partitions
    racks = {each.broker_id: each.rack for each in all_brokers}
    for replicas in placement:
        assert len(set(replicas)) == factor and replicas[0] in serving
        assert len({racks[replica] for replica in replicas}) == min(
            factor, len(set(racks.values()))
        )
    assert placement == place_replicas(partitions, factor, all_brokers, random.Random(seed))


def test_every_broker_leads_equally_often() -> None:
    """Three rounds of five brokers, also after a shuffle.

    With several racks this is not guaranteed.
    """
    placement = place_replicas(15, 3, [broker(number) for number in range(5)], random.Random(7))
    assert not isinstance(placement, Refusal)
    assert set(Counter(replicas[0] for replicas in placement).values()) == {3}
    assert set(Counter(replica for replicas in placement for replica in replicas).values()) == {9}


# Indexes
# --------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["topic", "partition", "remove"]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.permutations("123"),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=25,
)


def queries(table: TopicTable) -> object:
    """Return the results of all queries of a table."""
    return (
        [
            (topic.name, topic.topic_id, dict(sorted(topic.partitions.items())))
            for topic in table.topics()
        ],
        [table.with_isr_member(broker_id) for broker_id in range(5)],
        [table.leads_any(broker_id) for broker_id in range(5)],
        (
            table.leaderless(),
            table.imbalanced(),
            table.reassigning(),
            table.has_leaderless,
            table.has_imbalanced,
            table.partition_count,
        ),
        [table.colliding_name(name) for name in ("a.b", "a_b", "c")],
    )


NAMES = ("a.b", "a_b", "c", "d.e")


def carry_out(table: TopicTable, step: tuple[str, int, int, list[str], int, bool]) -> None:
    verb, topic, number, replicas, isr_size, is_led = step
    topic_id = bytes([topic + 2]) * 16
    if verb == "topic" and table.topic(topic_id) is None:
        table.add_topic(NAMES[topic], topic_id)
    elif verb == "remove" and table.topic(topic_id) is not None:
        assert table.remove_topic(topic_id) == NAMES[topic]
    elif verb == "partition" and table.topic(topic_id) is not None:
        members = "".join(replicas[: max(isr_size, 1)])
        leader = int(members[-1]) if is_led else -1
        table.put_partition(
            (topic_id, number),
            partition(
                "".join(replicas), members, leader, adding=replicas[2] if isr_size == 2 else ""
            ),
        )


@settings(max_examples=100)
@given(steps, st.integers(0, 25))
def test_indexes_agree_with_the_partitions_also_after_a_revert(
    history: list[tuple[str, int, int, list[str], int, bool]], cut: int
) -> None:
    """Reverted to an offset, a table equals one that was built only up to that offset; every index
    lookup equals a full scan.
    """
    cut = min(cut, len(history))
    journal, plain = Journal(), TopicTable(Journal())
    table = TopicTable(journal)
    for offset, step in enumerate(history):
        journal.mark(offset)
        carry_out(table, step)
        if offset < cut:
            carry_out(plain, step)
    walked = list(table.partitions())
    assert table.partition_count == len(walked)
    for broker_id in range(5):
        assert table.with_isr_member(broker_id) == [
            key for key, held in walked if broker_id in held.isr
        ]
        assert table.leads_any(broker_id) == any(held.leader == broker_id for _, held in walked)
    assert table.leaderless() == [key for key, held in walked if held.leader == -1]
    assert table.imbalanced() == [key for key, held in walked if held.leader != held.replicas[0]]
    assert table.reassigning() == [key for key, held in walked if held.adding_replicas]
    journal.revert_to(cut)
    assert queries(table) == queries(plain)
