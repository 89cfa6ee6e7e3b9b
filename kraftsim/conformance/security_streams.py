"""Rights of streams group members: on the group, on the topics of the topology, and on the internal
topics that the coordinator creates for them.

Source: KIP-1071, KafkaApis.handleStreamsGroupHeartbeat; verified against Apache Kafka 4.4.0.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import CLUSTER, CLUSTER_NAME, GROUP, rule, ruled
from kraftsim.conformance.streams_group_client import (
    VERSION,
    StreamsGroupClient,
    StreamsGroupMember,
    subtopology,
)
from kraftsim.conformance.target import Target
from protocol.acls import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.k30_create_acls import AclCreation
from protocol.messages.k88_streams_group_heartbeat import (
    StatusCode,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from protocol.messages.k89_streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

REQUIREMENTS = Requirements("security", 11, "Rights of streams group members")
SINCE = "4.2"
SOURCE = "KafkaApis.handleStreamsGroupHeartbeat"


def joined(
    target: Target, member: StreamsGroupMember, *rules: AclCreation
) -> StreamsGroupHeartbeatResponse:
    """Join as alice with some rules, and return the response."""
    fields = {"group_id": member.talk.group_id, **member.joining()}
    request = StreamsGroupHeartbeatRequest(**fields)  # type: ignore[arg-type]  # of several types
    with ruled(target, *rules) as peer:
        return peer.ask(request, VERSION, StreamsGroupHeartbeatResponse)


@REQUIREMENTS.that(
    1,
    "a member needs READ on the group, and DESCRIBE on all topics of its topology",
    source=SOURCE,
    since=SINCE,
)
def members(target: Target) -> None:
    topic, store = target.topic().name, target.topic().name
    with StreamsGroupClient(target) as group:
        member = group.member("a", subtopology(0, [topic], stores=[store]))
        read = rule(group.group_id, AclOperation.READ, resource=GROUP)
        describe = rule(topic, AclOperation.DESCRIBE)
        answer = joined(target, member, describe)
        expect_error(answer.error_code, ErrorCode.GROUP_AUTHORIZATION_FAILED, "without READ")
        answer = joined(target, member, read, describe)
        expect_error(answer.error_code, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "without DESCRIBE")
        answer = joined(target, member, read, describe, rule(store, AclOperation.DESCRIBE))
        expect_error(answer.error_code, ErrorCode.NONE, "with both")
        asked = StreamsGroupDescribeRequest(group_ids=[group.group_id])
        of_group = rule(group.group_id, AclOperation.DESCRIBE, resource=GROUP)
        with ruled(target, of_group) as peer:
            row = peer.ask(asked, VERSION, StreamsGroupDescribeResponse).groups[0]
        expect_error(row.error_code, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a description")


@REQUIREMENTS.that(
    2,
    "internal topics are created with CREATE on them, or on the cluster; else the status says so",
    source=SOURCE,
    since=SINCE,
)
def internal_topics(target: Target) -> None:
    topic = target.topic().name
    for with_cluster in (False, True):
        store = target.fresh_name("store")
        with StreamsGroupClient(target) as group:
            member = group.member("a", subtopology(0, [topic], stores=[store]))
            rules = [
                rule(group.group_id, AclOperation.READ, resource=GROUP),
                rule(topic, AclOperation.DESCRIBE),
                rule(store, AclOperation.DESCRIBE),
            ]
            answer = joined(target, member, *rules)
            found = [
                row.status_detail
                for row in answer.status or ()
                if row.status_code == StatusCode.MISSING_INTERNAL_TOPICS
            ]
            expect_equal(
                found,
                [
                    f"Internal topics are missing: {store}; Unauthorized to CREATE on topics "
                    f"{store}."
                ],
                "the status",
            )
            create = (
                rule(CLUSTER_NAME, AclOperation.CREATE, resource=CLUSTER)
                if with_cluster
                else rule(store, AclOperation.CREATE)
            )
            answer = joined(target, member, *rules, create)
            details = [row.status_detail for row in answer.status or ()]
            expect(not any("Unauthorized" in detail for detail in details), "with CREATE")
            expect_equal(target.led_topic(store, 1).name, store, "the topic")
