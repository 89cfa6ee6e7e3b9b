"""What members of KIP-848 groups subscribe to when they join, and when a static member rejoins.

Source: KIP-848; org.apache.kafka.coordinator.group.GroupMetadataManager; verified against Apache
Kafka 4.0.2, 4.1.2, 4.2.2 and 4.4.0.
"""

from dataclasses import dataclass

from kraftsim.conformance.consumer_group_client import REBALANCE_MS, ConsumerGroupClient
from kraftsim.conformance.expect import Unmet, expect_equal, expect_error
from kraftsim.conformance.k68_consumer_group_heartbeat import MANAGER, SINCE, described
from kraftsim.conformance.k68_protocol_migration import OldMember
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("consumer-groups", 10, "Subscriptions of KIP-848 members")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heirs:
    """Two topics of one partition; each static member reads the first one by an expression, leaves
    for a while, and has an heir.
    """

    target: Target
    prefix: str
    read: TargetTopic
    other: TargetTopic

    @property
    def expression(self) -> str:
        """The expression of the former member."""
        return f"{self.prefix}.*"

    def joined(self, **fields: object) -> tuple[str | None, list[bytes]]:
        """Let an heir join with a subscription; return its expression, and the assigned topics."""
        instance = self.target.fresh_name("instance")
        with ConsumerGroupClient(self.target) as group_client:
            first = group_client.member(
                "a", instance_id=instance, subscribed_topic_regex=self.expression
            )
            first.join()
            group_client.settle(first, wanted=[{self.read.topic_id: (0,)}])
            first.leave(-2)
            answer = group_client.ask(
                member_id="b",
                member_epoch=0,
                instance_id=instance,
                rebalance_timeout_ms=REBALANCE_MS,
                topic_partitions=[],
                **fields,
            )
            expect_error(answer.error_code, ErrorCode.NONE, f"a join with {fields}")
            if answer.assignment is None:
                raise Unmet(f"a join with {fields} returns no assignment")
            return (
                described(group_client).members[0].subscribed_topic_regex,
                [row.topic_id for row in answer.assignment.topic_partitions],
            )


def _heirs(target: Target) -> Heirs:
    prefix = target.fresh_name("heirs")
    return Heirs(
        target=target,
        prefix=prefix,
        read=target.topic(name=f"{prefix}-1"),
        other=target.topic(name=f"not-{prefix}"),
    )


@REQUIREMENTS.that(
    1,
    "a static member that rejoins keeps the expression of its former incarnation if it sends null, "
    "has none if it sends an empty one, and else its own",
    source=MANAGER,
    since=SINCE,
)
def inherited_expressions(target: Target) -> None:
    heirs = _heirs(target)
    subscriptions: list[tuple[dict[str, object], str]] = [
        ({"subscribed_topic_names": []}, heirs.expression),
        ({"subscribed_topic_names": [heirs.other.name]}, heirs.expression),
        ({"subscribed_topic_names": [heirs.other.name], "subscribed_topic_regex": ""}, ""),
        ({"subscribed_topic_names": [], "subscribed_topic_regex": ""}, ""),
        ({"subscribed_topic_regex": heirs.other.name}, heirs.other.name),
    ]
    for fields, expected in subscriptions:
        expect_equal(heirs.joined(**fields)[0], expected, f"the expression after {fields}")


@REQUIREMENTS.that(
    2,
    "a member whose expression changes gives up what it does not read any longer at once",
    source="CurrentAssignmentBuilder",
    since="4.2",
)
def dropped_topics(target: Target) -> None:
    heirs = _heirs(target)
    subscriptions: list[tuple[dict[str, object], bool]] = [
        ({"subscribed_topic_names": []}, True),
        ({"subscribed_topic_names": [], "subscribed_topic_regex": ""}, False),
        ({"subscribed_topic_regex": heirs.other.name}, False),
    ]
    for fields, is_kept in subscriptions:
        found = heirs.joined(**fields)[1]
        expect_equal(heirs.read.topic_id in found, is_kept, f"the former topic after {fields}")


@REQUIREMENTS.that(
    3,
    "a join without topic names and without an expression returns INVALID_REQUEST, one with an "
    "empty list of names succeeds",
    source="GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid",
    since=SINCE,
)
def empty_subscriptions(target: Target) -> None:
    join: dict[str, object] = {
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": REBALANCE_MS,
        "topic_partitions": [],
    }
    with ConsumerGroupClient(target) as group_client:
        found = group_client.ask(**join)
        expect_equal(
            (found.error_code, found.error_message),
            (
                int(ErrorCode.INVALID_REQUEST),
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining.",
            ),
            "no subscription",
        )
        subscriptions: list[dict[str, object]] = [
            {"subscribed_topic_names": []},
            {"subscribed_topic_regex": ""},
        ]
        for fields in subscriptions:
            found = group_client.ask(**{**join, **fields})
            expect_error(found.error_code, ErrorCode.NONE, f"a join with {fields}")
            group_client.ask(member_id="a", member_epoch=-1)


@REQUIREMENTS.that(
    4,
    "a static member that rejoins as a classic member has no expression any longer",
    source=MANAGER,
    since="4.0",
)
def classic_heirs(target: Target) -> None:
    heirs = _heirs(target)
    instance = target.fresh_name("instance")
    with ConsumerGroupClient(target) as group_client:
        first = group_client.member(
            "a", instance_id=instance, subscribed_topic_regex=heirs.expression
        )
        stays = group_client.member("b", heirs.other)
        first.join()
        stays.join()
        first.leave(-2)
        heir = OldMember(group_client, heirs.other, instance)
        heir.join()
        found = {
            each.member_id: (each.subscribed_topic_names, each.subscribed_topic_regex)
            for each in described(group_client).members
        }
        expect_equal(
            found[heir.member_id], ([heirs.other.name], ""), "the subscription of the heir"
        )
