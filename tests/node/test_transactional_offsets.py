"""Transactional offsets on brokers, in virtual time: their fate at a coordinator failover, and when
a member may commit them.

Source: KIP-447, KIP-890, KAFKA-15784.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from kraftsim.groups.events import (
    OffsetLoaded,
    OffsetMaterialised,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.lab.bugs.bug import bug
from kraftsim.transactions.verification import Verifier
from protocol.errors import ErrorCode
from protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.node.brokers import Client, Cluster, running_cluster
from tests.node.test_groups_on_brokers import FEW, GROUP, commit_patiently, found

PRODUCER_ID = 7
UNVERIFIED = {
    "transaction_partition_verification_enable": "false",
    "offsets_topic_replication_factor": "3",
    **FEW,
}
UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def commit_in_transaction(client: Client, offset: int, **member: Any) -> int:
    """Commit an offset of t-0, and return the error."""
    rows = [
        TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
    ]
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=rows)]
    asked = TxnOffsetCommitRequest(
        transactional_id="T",
        group_id=GROUP,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        topics=topics,
        **member,
    )
    return int((await client.ask(asked, 3)).topics[0].partitions[0].error_code)


async def stable_offset(client: Client) -> tuple[int, int]:
    """Return the stable offset of t-0, or -1, and the error."""
    asked = OffsetFetchRequest(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        require_stable=True,
    )
    answer = await client.ask(asked, 7)
    row = answer.topics[0].partitions[0]
    return int(row.committed_offset), int(row.error_code)


def marker(partition: int, *, commits: bool) -> Callable[[Client], Any]:
    """Return the request that writes the transaction's marker to a partition of
    __consumer_offsets.
    """
    topics = [WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[partition])]
    row = WritableTxnMarker(
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        transaction_result=commits,
        coordinator_epoch=0,
        topics=topics,
    )

    async def write(client: Client) -> int:
        return int(
            (await client.ask(WriteTxnMarkersRequest(markers=[row]), 1))
            .markers[0]
            .topics[0]
            .partitions[0]
            .error_code
        )

    return write


def survivors(cluster: Cluster, dead: str) -> str:
    """Kill a broker, and return the name of the group's next coordinator."""
    cluster.kill(dead, power_loss=True)
    cluster.simulation.run_for(8)
    second = found(cluster, next(name for name in cluster.broker_names if name != dead))
    assert second != dead
    cluster.simulation.run_for(1)
    return second


@pytest.mark.parametrize(("commits", "expected"), [(True, 9), (False, 5)])
def test_pending_offsets_are_pending_at_the_next_coordinator_too(
    commits: bool, expected: int
) -> None:
    with running_cluster(3, settings=UNVERIFIED) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        first = found(cluster)
        cluster.run(lambda client: commit_patiently(client, 5), first)
        assert cluster.run(lambda client: commit_in_transaction(client, 9), first) == 0
        (added,) = cluster.emitted(PendingOffsetAdded, first)
        assert cluster.run(stable_offset, first) == (-1, UNSTABLE)
        second = survivors(cluster, first)
        assert cluster.run(stable_offset, second) == (-1, UNSTABLE)
        assert [
            event.offset
            for event in cluster.emitted(OffsetLoaded, second)
            if event.producer_id == PRODUCER_ID
        ] == [9]
        assert cluster.run(marker(added.coordinator_partition, commits=commits), second) == 0
        assert cluster.run(stable_offset, second) == (expected, 0)
        assert (
            len(cluster.emitted(OffsetMaterialised if commits else PendingOffsetDropped, second))
            == 1
        )


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_resolved_by_a_marker_stay_so_at_the_next_coordinator(commits: bool) -> None:
    with running_cluster(3, settings=UNVERIFIED) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        first = found(cluster)
        cluster.run(lambda client: commit_patiently(client, 5), first)
        assert cluster.run(lambda client: commit_in_transaction(client, 9), first) == 0
        (added,) = cluster.emitted(PendingOffsetAdded, first)
        assert cluster.run(marker(added.coordinator_partition, commits=commits), first) == 0
        expected = (9 if commits else 5, 0)
        assert cluster.run(stable_offset, first) == expected
        assert cluster.run(stable_offset, survivors(cluster, first)) == expected


class SlowVerifier(Verifier):
    """Confirms the verification on command of the test."""

    held: ClassVar[list[Callable[[], None]]] = []

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Any,
        on_verified: Any,
        *,
        adds: bool = False,
    ) -> None:
        answer: Mapping[Any, ErrorCode] = dict.fromkeys(partitions, ErrorCode.NONE)
        self.held.append(lambda: on_verified(answer))


@pytest.mark.parametrize(
    ("bug_name", "error"), [("", ErrorCode.UNKNOWN_MEMBER_ID), ("KAFKA-15784", ErrorCode.NONE)]
)
def test_member_removed_during_verification_commits_nothing(
    bug_name: str, error: ErrorCode
) -> None:
    """KAFKA-15784: a check before the verification would accept it."""
    with running_cluster(
        1, offsets_topic_replication_factor="1", group_initial_rebalance_delay_ms="0", settings=FEW
    ) as cluster:
        cluster.kill("broker-1")
        parts = cluster.parts.replacing(verifier=SlowVerifier)
        cluster.parts = bug(bug_name).into(parts) if bug_name else parts
        SlowVerifier.held = []
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.run(lambda client: client.create_topic("t"))
        found(cluster)

        async def live(client: Client) -> int:
            await commit_patiently(client, 5)
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            asked = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=30_000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            )
            joined = await client.ask(asked, 3)
            shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")]
            await client.ask(
                SyncGroupRequest(
                    group_id=GROUP, generation_id=1, member_id=joined.member_id, assignments=shares
                ),
                3,
            )
            member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
            slow = await cluster.connect()
            late = cluster.simulation.spawn("client", commit_in_transaction(slow, 9, **member))
            while not SlowVerifier.held:
                await asyncio.sleep(0.01)
            await client.ask(
                LeaveGroupRequest(
                    group_id=GROUP, members=[MemberIdentity(member_id=joined.member_id)]
                ),
                3,
            )
            (answer,) = SlowVerifier.held
            answer()
            return int(await late)

        assert cluster.run(live) == error
