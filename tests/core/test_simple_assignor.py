"""The assignor of share groups, and the hash maps whose order it has: each partition gets members,
and each member about as many partitions as any other.

tests/apache_kafka/test_shared_assignments.py compares it with Apache Kafka's class.
Source: KIP-932, org.apache.kafka.coordinator.group.assignor.SimpleAssignor; java.util.HashMap.
"""

import pytest

from kraftsim.groups.rules_assignors import NO_SHARES, Shares
from kraftsim.groups.rules_group_configs import NO_GROUP_CONFIGS, GroupConfigs
from kraftsim.groups.rules_java_maps import JavaMap, JavaSet, room_for
from kraftsim.groups.rules_simple_assignor import SharingMember, assign_shared

T, U = b"t" * 16, b"u" * 16


def member(member_id: str, *topic_ids: bytes, target: Shares = NO_SHARES) -> SharingMember:
    return SharingMember(
        member_id=member_id, topic_ids=topic_ids, subscribes=bool(topic_ids), target=target
    )


@pytest.mark.parametrize("partition_count", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("member_count", [1, 2, 3, 8])
def test_members_and_partitions_are_balanced(partition_count: int, member_count: int) -> None:
    members = [member(f"m{number}", T) for number in range(member_count)]
    numbers = range(partition_count)
    shares = assign_shared(members, {T: partition_count}, {T: numbers}, has_same_topics=True)
    sizes = [len(shares[each.member_id].get(T, ())) for each in members]
    assert max(sizes) - min(sizes) <= 1
    given = [number for each in shares.values() for number in each.get(T, ())]
    counts = [given.count(number) for number in numbers]
    assert min(counts) >= 1 and max(counts) - min(counts) <= 1


def test_newcomer_takes_no_more_than_its_part() -> None:
    target = {T: (0, 1, 2, 3)}
    shares = assign_shared(
        [member("a", T, target=target), member("b", T)],
        {T: 4},
        {T: range(4)},
        has_same_topics=True,
    )
    assert {each: len(found[T]) for each, found in shares.items()} == {"a": 2, "b": 2}
    assert set(shares["a"][T]) < {0, 1, 2, 3}


def test_only_initialized_partitions_are_assigned() -> None:
    shares = assign_shared([member("a", T)], {T: 4}, {T: (1, 2)}, has_same_topics=True)
    assert shares == {"a": {T: (1, 2)}}


def test_topics_are_shared_by_their_subscribers_only() -> None:
    members = [member("a", T), member("b", T, U), member("c", U)]
    shares = assign_shared(members, {T: 2, U: 2}, {T: range(2), U: range(2)}, has_same_topics=False)
    assert set(shares["a"]) == {T} and set(shares["c"]) == {U}
    assert {topic_id: len(numbers) for topic_id, numbers in shares["b"].items()} == {T: 1, U: 1}


def test_members_without_topics_get_nothing() -> None:
    assert assign_shared([], {T: 1}, {T: (0,)}, has_same_topics=True) == {}
    assert assign_shared([member("a")], {T: 1}, {T: (0,)}, has_same_topics=True) == {}


def test_map_has_the_order_of_its_buckets() -> None:
    """A key that is put comes last in its bucket, a computed one first; a map with more than 3/4 of
    its buckets in keys doubles them, when a key is put afterwards, when one is computed before.
    """
    made: JavaMap[int, str] = JavaMap(int, 4)
    for key in (5, 1, 2):
        made.put(key, "")
    assert list(made) == [5, 1, 2]
    made.compute(9, str)
    assert list(made) == [9, 5, 1, 2], "four keys in four buckets"
    made.compute(9, str)
    assert list(made) == [9, 1, 2, 5], "eight buckets"
    made.pop(1)
    assert list(made) == [9, 2, 5]
    assert list(JavaSet.of(int, (17, 16, 1))) == [16, 17, 1]
    assert room_for(12) == 18


def test_number_of_a_broker_setting_has_a_default_where_the_release_has_none() -> None:
    configs = GroupConfigs(NO_GROUP_CONFIGS, lambda _: {}, {"group.share.max.size": "7"}.get)
    assert configs.setting_number("group.share.max.size", 200) == 7
    assert configs.setting_number("group.share.initialize.retry.interval.ms", 30_000) == 30_000
