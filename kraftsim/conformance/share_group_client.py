"""A share group for the checks: members that send heartbeats, and share sessions on the leaders of
partitions, in which they acquire and acknowledge records.
"""

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.conformance.batches import produce
from kraftsim.conformance.expect import (
    Inapplicable,
    Unmet,
    error_name,
    expect_equal,
    expect_error,
    settled,
)
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.messages.k77_share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from protocol.messages.k78_share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.k79_share_acknowledge import AcknowledgementBatch as AloneBatch
from protocol.messages.k79_share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

SINCE: Final = "4.1"
"""Share groups of 4.0 were an early access, with other versions of their APIs."""
FEATURE: Final = "share.version"
GROUP_TYPE, BROKER_TYPE = 32, 4
"""Types of configuration resources."""
UPGRADE: Final = 1
LOCK: Final = "share.record.lock.duration.ms"
LOCK_MIN: Final = "group.share.min.record.lock.duration.ms"
RESET: Final = "share.auto.offset.reset"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""The types of acknowledgement."""
WAIT_MS: Final = 500
LOTS: Final = 10_000
Partition = tuple[bytes, int]
"""Topic id and number."""
Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First and last offset, both inclusive, and one type for all or one for each."""


class ShareMember:
    """One member. `assigned` is its assignment, by topic id, which it takes as it comes."""

    def __init__(self, group: "ShareGroupClient", topics: Sequence[str], member_id: str) -> None:
        self.group = group
        self.topics = list(topics)
        self.member_id = member_id
        self.epoch = 0
        self.assigned: dict[bytes, tuple[int, ...]] = {}

    def ask(self, **changed: object) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat with some fields, and return the response."""
        fields: dict[str, object] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            **changed,
        }
        return self.group.ask(**fields)

    def join(self) -> ShareGroupHeartbeatResponse:
        """Join and take the assignment; retry while the coordinator is loading."""
        self.epoch = 0
        return self._take(
            with_retries(
                lambda: self.ask(subscribed_topic_names=self.topics),
                lambda answer: answer.error_code,
            )
        )

    def beat(self, **changed: object) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat and take the assignment."""
        return self._take(self.ask(**changed))

    def leave(self) -> ShareGroupHeartbeatResponse:
        """Leave the group."""
        return self.ask(member_epoch=-1)

    def settle(self, wanted: Mapping[bytes, tuple[int, ...]]) -> None:
        """Send heartbeats until the assignment is the expected one. Raises Unmet after a while."""

        def look() -> dict[bytes, tuple[int, ...]]:
            self.beat()
            return self.assigned

        settled(look, lambda found: found == dict(wanted), f"the assignment of {self.member_id}")

    def session(self, address: str | None = None) -> "ShareSession":
        """Return a session that is not opened yet, on a connection of its own to a leader."""
        return ShareSession(self.group.target.peer(address), self.group, self.member_id)

    def _take(self, answer: ShareGroupHeartbeatResponse) -> ShareGroupHeartbeatResponse:
        expect_error(answer.error_code, ErrorCode.NONE, f"a heartbeat of {self.member_id}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = {
                row.topic_id: tuple(sorted(row.partitions))
                for row in answer.assignment.topic_partitions
            }
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """What one partition's row of a ShareFetch response says."""

    error_code: int
    acknowledge_error_code: int
    rows: list[tuple[int, int, int]]
    """First offset, last offset (inclusive) and delivery count of each range."""
    size_bytes: int

    @property
    def counts(self) -> dict[int, int]:
        """Offset -> delivery count."""
        return {
            offset: count for first, last, count in self.rows for offset in range(first, last + 1)
        }


class ShareSession:
    """The share session of a member on one leader; `epoch` is that of its next request."""

    def __init__(self, peer: Peer, group: "ShareGroupClient", member_id: str) -> None:
        self.peer = peer
        self.group = group
        self.member_id = member_id
        self.epoch = 0

    def __enter__(self) -> "ShareSession":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def fetch(
        self,
        *partitions: Partition,
        acks: Mapping[Partition, Acks] | None = None,
        forgotten: Sequence[Partition] = (),
        version: int | None = None,
        **fields: object,
    ) -> ShareFetchResponse:
        """Send a ShareFetch that adds partitions and acknowledges, and go on to the next epoch
        unless it is refused as a whole.
        """
        done = acks or {}
        asked = ShareFetchRequest(
            # arg-type: values of several types
            **{  # type: ignore[arg-type]
                "group_id": self.group.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "max_wait_ms": WAIT_MS,
                "min_bytes": 1,
                "max_records": LOTS,
                "batch_size": LOTS,
                "topics": [
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(
                                partition_index=number,
                                acknowledgement_batches=[
                                    AcknowledgementBatch(
                                        first_offset=first,
                                        last_offset=last,
                                        acknowledge_types=list(types),
                                    )
                                    for first, last, types in done.get((topic_id, number), ())
                                ],
                            )
                        ],
                    )
                    for topic_id, number in dict.fromkeys((*partitions, *done))
                ],
                "forgotten_topics_data": [
                    ForgottenTopic(topic_id=topic_id, partitions=[number])
                    for topic_id, number in forgotten
                ],
                **fields,
            }
        )
        chosen = self.group.fetch_version if version is None else version
        answer = self.peer.ask(asked, chosen, ShareFetchResponse)
        self._go_on(answer.error_code)
        return answer

    def acknowledge(
        self, acks: Mapping[Partition, Acks], version: int | None = None, **fields: object
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge, and go on to the next epoch unless it is refused as a whole."""
        asked = ShareAcknowledgeRequest(
            # arg-type: values of several types
            **{  # type: ignore[arg-type]
                "group_id": self.group.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "topics": [
                    AcknowledgeTopic(
                        topic_id=topic_id,
                        partitions=[
                            AcknowledgePartition(
                                partition_index=number,
                                acknowledgement_batches=[
                                    AloneBatch(
                                        first_offset=first,
                                        last_offset=last,
                                        acknowledge_types=list(types),
                                    )
                                    for first, last, types in rows
                                ],
                            )
                        ],
                    )
                    for (topic_id, number), rows in acks.items()
                ],
                **fields,
            }
        )
        chosen = self.group.acknowledge_version if version is None else version
        answer = self.peer.ask(asked, chosen, ShareAcknowledgeResponse)
        self._go_on(answer.error_code)
        return answer

    def acquire(
        self,
        partition: Partition,
        count: int,
        *,
        max_records: int = LOTS,
    ) -> dict[int, int]:
        """Fetch until so many records are acquired, and return their delivery counts by offset.

        Raises Unmet after a while, and for an error.
        """
        found: dict[int, int] = {}

        def look() -> int:
            opening = () if self.epoch else (partition,)
            answer = self.fetch(*opening, max_records=max_records)
            expect_error(answer.error_code, ErrorCode.NONE, "a ShareFetch")
            row = row_of(answer, partition)
            if row is not None:
                expect_error(row.error_code, ErrorCode.NONE, "the partition of a ShareFetch")
                expect_error(row.acknowledge_error_code, ErrorCode.NONE, "its acknowledgement")
                found.update(row.counts)
            return len(found)

        settled(look, lambda size: size >= count, f"acquiring {count} records")
        expect_equal(len(found), count, "the acquired records")
        return found

    def acknowledged(
        self,
        partition: Partition,
        *acks: tuple[int, int, Sequence[int]],
        renews: bool = False,
    ) -> int:
        """Acknowledge in one partition and return the partition's error."""
        answer = (
            self.acknowledge({partition: acks}, is_renew_ack=True)
            if renews
            else self.acknowledge({partition: acks})
        )
        expect_error(answer.error_code, ErrorCode.NONE, "a ShareAcknowledge")
        return answer.responses[0].partitions[0].error_code

    def finish(self, acks: Mapping[Partition, Acks] | None = None) -> ShareAcknowledgeResponse:
        """Send the last request of the session, which releases what is still acquired."""
        self.epoch = -1
        return self.acknowledge(acks or {})

    def look(self, partition: Partition, **fields: object) -> "Acquired | None":
        """Fetch once, with the partition if the session is new, and return the partition's row."""
        opening = () if self.epoch else (partition,)
        return row_of(
            self.fetch(*opening, acks=None, forgotten=(), version=None, **fields), partition
        )

    def _go_on(self, error_code: int) -> None:
        if error_code == ErrorCode.NONE and self.epoch >= 0:
            self.epoch += 1


class ShareGroupClient:
    """A group with a new name on one connection, whose coordinator is available.

    `configs` are set for the group; the default is to start at the earliest offset.
    """

    def __init__(self, target: Target, configs: Mapping[str, str] | None = None) -> None:
        require_share_groups(target)
        self.target = target
        self.classic = GroupClient(target)
        self.group_id = self.classic.group_id
        self.version = target.newest(ApiKey.SHARE_GROUP_HEARTBEAT)
        self.fetch_version = target.newest(ApiKey.SHARE_FETCH)
        self.acknowledge_version = target.newest(ApiKey.SHARE_ACKNOWLEDGE)
        self.peer: Peer = self.classic.peer()
        chosen = {RESET: "earliest"} if configs is None else configs
        if chosen:
            self.configure(chosen)

    def __enter__(self) -> "ShareGroupClient":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def configure(self, configs: Mapping[str, str]) -> None:
        """Set configurations of the group, and wait until the broker has applied them."""
        code, message = alter_group(self.target, self.group_id, configs)
        if code != ErrorCode.NONE:
            raise Unmet(f"{configs} of a group: {error_name(code)} {message}")
        settled(
            lambda: {name: group_configs(self.target, self.group_id)[name] for name in configs},
            lambda found: found == dict(configs),
            "configurations of a group",
        )

    def ask(self, **fields: object) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat to the group."""
        # arg-type: a dict of values of several types
        asked = ShareGroupHeartbeatRequest(**{"group_id": self.group_id, **fields})  # type: ignore[arg-type]
        return self.peer.ask(asked, self.version, ShareGroupHeartbeatResponse)

    def member(self, *topics: TargetTopic | str, member_id: str = "") -> ShareMember:
        """Return a member that has not joined yet."""
        names = [topic if isinstance(topic, str) else topic.name for topic in topics]
        return ShareMember(self, names, member_id or fresh_member_id())

    def joined(self, topic: TargetTopic, partitions: int = 1) -> ShareMember:
        """Return a member that is assigned all partitions of a topic."""
        member = self.member(topic)
        member.join()
        member.settle({topic.topic_id: tuple(range(partitions))})
        return member

    def described(self, **fields: object) -> DescribedGroup:
        """Return the description of the group."""
        return describe_groups(self.target, self.peer, [self.group_id], **fields)[0]


def describe_groups(
    target: Target, peer: Peer, group_ids: list[str], **fields: object
) -> list[DescribedGroup]:
    """Return the descriptions of groups."""
    # arg-type: a dict of values of several types
    asked = ShareGroupDescribeRequest(**{"group_ids": group_ids, **fields})  # type: ignore[arg-type]
    version = target.newest(ApiKey.SHARE_GROUP_DESCRIBE)
    return peer.ask(asked, version, ShareGroupDescribeResponse).groups


def fresh_member_id() -> str:
    """Return a member id, which members of share groups choose themselves: 4.1 reads it as an id of
    Kafka, in 22 characters.
    """
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def row_of(answer: ShareFetchResponse, partition: Partition) -> Acquired | None:
    """Return the row of a partition, or nothing if it is left out."""
    found = partition_of(answer, partition)
    if found is None:
        return None
    return Acquired(
        error_code=found.error_code,
        acknowledge_error_code=found.acknowledge_error_code,
        rows=[
            (row.first_offset, row.last_offset, row.delivery_count)
            for row in found.acquired_records
        ],
        size_bytes=len(found.records or b""),
    )


def partition_of(answer: ShareFetchResponse, partition: Partition) -> PartitionData | None:
    """Return the row of a partition as it is in the response."""
    return next(
        (
            row
            for topic in answer.responses
            for row in topic.partitions
            if (topic.topic_id, row.partition_index) == partition
        ),
        None,
    )


def fill(target: Target, topic: TargetTopic, *counts: int, partition: int = 0) -> None:
    """Produce batches of so many records each to a partition of one leader."""
    with target.peer(topic.leader) as peer:
        for count in counts:
            records = [
                Record(timestamp=time.time_ns() // 1_000_000, value=b"value") for _ in range(count)
            ]
            row = produce(peer, topic.name, build_batch(records), partition=partition)
            expect_error(row.error_code, ErrorCode.NONE, "filling a topic")


# Configurations and features
# --------------------------------------------------------------------------------------------------


def alter_group(
    target: Target, group_id: str, configs: Mapping[str, str | None], operation: int = SET
) -> tuple[int, str]:
    """Change configurations of a group, and return error and message."""
    rows = [
        AlterableConfig(name=name, config_operation=operation, value=value)
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_TYPE, resource_name=group_id, configs=rows)
    with target.peer() as peer:
        answer = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]),
            target.newest(ApiKey.INCREMENTAL_ALTER_CONFIGS),
            IncrementalAlterConfigsResponse,
        )
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def group_configs(target: Target, group_id: str) -> dict[str, str | None]:
    """Return the configurations of a group."""
    return _configs(target, GROUP_TYPE, group_id)


def lock_ms(target: Target) -> int:
    """Return the shortest lock that the node allows a group: 15 s by default."""
    with target.peer() as peer:
        version = target.newest(ApiKey.METADATA)

        brokers = peer.ask(MetadataRequest(topics=[]), version, MetadataResponse).brokers
    found = _configs(target, BROKER_TYPE, str(brokers[0].node_id))
    return int(found[LOCK_MIN] or 0)


def _configs(target: Target, resource_type: int, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    with target.peer() as peer:
        answer = peer.ask(
            DescribeConfigsRequest(resources=[resource]),
            target.newest(ApiKey.DESCRIBE_CONFIGS),
            DescribeConfigsResponse,
        ).results[0]
    expect_error(answer.error_code, ErrorCode.NONE, f"describing {name}")
    return {row.name: row.value for row in answer.configs}


def require_share_groups(target: Target, api_key: ApiKey = ApiKey.SHARE_GROUP_HEARTBEAT) -> None:
    """Enable share groups where they are off by default. Raises Inapplicable if the node does not
    have an API of theirs, or only the early access of 4.0.
    """
    ranges = target.ranges()
    is_early = ranges.get(ApiKey.SHARE_GROUP_HEARTBEAT) == (0, 0)
    if api_key not in ranges or is_early:
        raise Inapplicable(f"{api_key.name} is not offered")
    if finalized(target, FEATURE) > 0:
        return
    row = FeatureUpdateKey(feature=FEATURE, max_version_level=1, upgrade_type=UPGRADE)
    with target.peer() as peer:
        answer = peer.ask(
            UpdateFeaturesRequest(feature_updates=[row]),
            target.newest(ApiKey.UPDATE_FEATURES),
            UpdateFeaturesResponse,
        )
    expect_error(answer.error_code, ErrorCode.NONE, f"enabling {FEATURE}")
    settled(lambda: finalized(target, FEATURE), lambda level: level > 0, FEATURE)


def finalized(target: Target, feature: str) -> int:
    """Return the finalized level of a feature; 0: none."""
    with target.peer() as peer:
        asked = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")
        answer = peer.ask(asked, 3, ApiVersionsResponse)
    return next(
        (row.max_version_level for row in answer.finalized_features if row.name == feature), 0
    )
