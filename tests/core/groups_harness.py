"""A group coordinator without a node: the test sets the time, the log is a list, and appends are
replicated on command.
"""

from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.groups.rules_classic_group import ClassicGroup
from kraftsim.groups.rules_committing import (
    OffsetCommitInput,
    OffsetToCommit,
    TransactionalCommitInput,
)
from kraftsim.groups.rules_offsets import (
    Append,
    CoordinatorRecord,
    Effect,
    GroupReply,
    Stored,
    WritingProducer,
)
from kraftsim.groups.rules_rebalance import JoinInput, SyncInput
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import (
    DeletionAnswer,
    GroupAnswer,
    GroupMoment,
    GroupSettings,
    JoinAnswer,
    Protocols,
    SyncAnswer,
)
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.control_records import build_transaction_marker
from protocol.records.record import Record

WALL_MS = 1_700_000_000_000
SESSION_MS, REBALANCE_MS = 10_000, 20_000
GROUP = "g"
PRODUCER_ID = 4000
Value = TypeVar("Value")


class GroupsHarness:
    """One shard. `holds_back`: appends wait in `held` for `store`."""

    def __init__(self, shard_class: type[GroupShard] = GroupShard, **settings: object) -> None:
        # arg-type: keyword arguments of several types
        self.settings = GroupSettings(**settings)  # type: ignore[arg-type]
        self.events: list[Event] = []
        self.shard = shard_class(self.settings, 7, self.events.append)
        self.now_ms = 0
        self.answers: dict[int, GroupAnswer] = {}
        self.records: list[CoordinatorRecord] = []
        self.log: list[RecordBatch] = []
        self.held: list[tuple[int, int]] = []
        self.holds_back = False
        self._waiters = 0

    @property
    def now(self) -> GroupMoment:
        """The current time."""
        return GroupMoment(self.now_ms, WALL_MS + self.now_ms)

    def settle(self, effects: list[Effect]) -> None:
        """Execute the effects of an input."""
        for effect in effects:
            if isinstance(effect, GroupReply):
                assert effect.waiter not in self.answers, "a request is answered once"
                self.answers[effect.waiter] = effect.answer
                continue
            assert isinstance(effect, Append)
            first_offset = len(self.records)
            if effect.records:
                self.records += effect.records
                self.log.append(
                    batch_of(*effect.records, offset=first_offset, **of_producer(effect.producer))
                )
            if effect.token is not None:
                self.held.append((effect.token, first_offset))
                if not self.holds_back:
                    self.store()

    def settled(self, outcome: tuple[Value, list[Effect]]) -> Value:
        """Execute the effects of an input, and return its value."""
        value, effects = outcome
        self.settle(effects)
        return value

    def store(self, error: ErrorCode = ErrorCode.NONE, index: int = 0) -> None:
        """Complete one of the waiting appends with a result."""
        token, first_offset = (
            self.held[index] if error is ErrorCode.REQUEST_TIMED_OUT else self.held.pop(index)
        )
        self.settle(self.shard.on_stored(token, Stored(error, first_offset, self.now)))

    def pass_time(self, milliseconds: int) -> None:
        """Advance the time, deadline by deadline."""
        until_ms = self.now_ms + milliseconds
        while (next_ms := self.shard.timers.next_ms) is not None and next_ms <= until_ms:
            self.now_ms = max(next_ms, self.now_ms)
            self.settle(self.shard.on_wake(self.now))
        self.now_ms = until_ms

    # Requests
    # ----------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        fresh: str = "1",
        protocols: str = "range",
        instance: str | None = None,
        spoken: Protocols | None = None,
        **changed: object,
    ) -> int:
        """Request to join; return the number of the pending response. `protocols` are names
        separated by spaces; `spoken` also has subscriptions.
        """
        self._waiters += 1
        fields: dict[str, object] = {
            "group_id": GROUP,
            "member_id": member_id,
            "group_instance_id": instance,
            "client_id": "c",
            "client_host": "/h",
            "rebalance_timeout_ms": REBALANCE_MS,
            "session_timeout_ms": SESSION_MS,
            "protocol_type": "consumer",
            "protocols": tuple((name, b"") for name in protocols.split())
            if spoken is None
            else spoken,
            "fresh_id": fresh,
            "takes_id_first": False,
            "skips_assignment": False,
            **changed,
        }
        # arg-type: a dict of values of several types
        asked = JoinInput(**fields)  # type: ignore[arg-type]
        self.settle(self.shard.join(self._waiters, asked, self.now))
        return self._waiters

    def joined(self, waiter: int) -> JoinAnswer:
        """The response to a join."""
        answer = self.answers[waiter]
        assert isinstance(answer, JoinAnswer)
        return answer

    def sync(self, member_id: str, generation_id: int, **shares: bytes) -> int:
        """Request the assignment; the leader sends all of them, by member with '_' for '-'."""
        self._waiters += 1
        asked = SyncInput(
            group_id=GROUP,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=None,
            protocol_type=None,
            protocol_name=None,
            assignments={name.replace("_", "-"): share for name, share in shares.items()},
        )
        self.settle(self.shard.sync(self._waiters, asked, self.now))
        return self._waiters

    def synced(self, waiter: int) -> SyncAnswer:
        """The response to a sync."""
        answer = self.answers[waiter]
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(self, member_id: str, generation_id: int) -> ErrorCode:
        """Send a heartbeat."""
        return self.settled(self.shard.heartbeat(GROUP, member_id, None, generation_id, self.now))

    def leave(self, member_id: str, instance: str | None = None) -> None:
        """Let a member leave."""
        self.settled(self.shard.leave(GROUP, [(member_id, instance)], self.now))

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = -1,
        partition: int = 0,
        retention_ms: int = -1,
        metadata: str = "",
        version: int = 0,
    ) -> int:
        """Commit an offset of topic t."""
        self._waiters += 1
        row = OffsetToCommit(
            topic="t", partition=partition, offset=offset, leader_epoch=-1, metadata=metadata
        )
        asked = OffsetCommitInput(
            group_id=GROUP,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=None,
            retention_ms=retention_ms,
            offsets=[row],
        )
        self.settle(self.shard.commit(self._waiters, asked, self.now, version))
        return self._waiters

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer_id: int = PRODUCER_ID,
        member_id: str = "",
        generation_id: int = -1,
        instance: str | None = None,
        partition: int = 0,
        metadata: str = "",
    ) -> int:
        """Commit an offset of topic t in a transaction."""
        self._waiters += 1
        asked = TransactionalCommitInput(
            transactional_id="x",
            group_id=GROUP,
            producer=WritingProducer(producer_id, 0),
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance,
            offsets=[
                OffsetToCommit(
                    topic="t",
                    partition=partition,
                    offset=offset,
                    leader_epoch=-1,
                    metadata=metadata,
                )
            ],
        )
        self.settle(self.shard.commit_in_transaction(self._waiters, asked, self.now))
        return self._waiters

    def delete_offset(self, partition: int = 0) -> int:
        """Delete the offset of a partition of topic t; return the number of the response."""
        self._waiters += 1
        self.settle(self.shard.delete_offsets(self._waiters, GROUP, [("t", partition)], self.now))
        return self._waiters

    def delete_group(self, *more: str) -> int:
        """Delete the group, and others; return the number of the response."""
        self._waiters += 1
        self.settle(self.shard.delete_groups(self._waiters, [GROUP, *more], self.now))
        return self._waiters

    def deleted(self, waiter: int) -> list[ErrorCode] | ErrorCode:
        """The errors of a deletion, or the one of the whole request."""
        answer = self.answers[waiter]
        assert isinstance(answer, DeletionAnswer)
        return list(answer.errors) if answer.error is ErrorCode.NONE else answer.error

    def end_transaction(self, *, commits: bool, producer_id: int = PRODUCER_ID) -> None:
        """Write the marker of a producer's transaction."""
        marker_offset = len(self.records)
        self.records.append(CoordinatorRecord(b"marker", None))
        marker = build_transaction_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commits=commits,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=marker_offset,
        )
        self.log.append(RecordBatch(marker))
        self.shard.end_transaction(producer_id, 0, marker_offset, is_commit=commits)

    def committed(
        self, partition: int = 0, *, require_stable: bool = False
    ) -> int | ErrorCode | None:
        """The committed offset of a partition of topic t, or the error."""
        found = self.shard.fetch_offsets(GROUP, [("t", partition)], require_stable=require_stable)[
            0
        ]
        if found.error is not ErrorCode.NONE:
            return found.error
        return None if found.offset is None else found.offset.offset

    # Scenarios
    # ----------------------------------------------------------------------------------------------

    def stable(self, *names: str) -> int:
        """Bring the group of these members, by the suffixes of their ids, into its next generation,
        with assignments of their names; return it.
        """
        waiters = [
            self.join(f"c-{name}" if f"c-{name}" in self.member_ids else "", fresh=name)
            for name in names
        ]
        self.pass_time(2 * self.settings.initial_rebalance_delay_ms)
        answers = [self.joined(waiter) for waiter in waiters]
        assert {answer.error for answer in answers} == {ErrorCode.NONE}
        generation_id = answers[0].generation_id
        for answer in answers:
            self.sync(
                answer.member_id, generation_id, **{f"c_{name}": name.encode() for name in names}
            )
        return generation_id

    @property
    def member_ids(self) -> list[str]:
        """Ids of the members, in order."""
        return list(self.group.members) if GROUP in self.shard.groups else []

    @property
    def group(self) -> ClassicGroup:
        """The group."""
        return self.shard.groups[GROUP]

    def reloaded(self) -> "GroupsHarness":
        """Another coordinator that has replayed the same log."""
        other = GroupsHarness(type(self.shard))
        for batch in self.log:
            other.shard.replay(batch)
        other.records, other.log = list(self.records), list(self.log)
        other.settle(other.shard.begin(other.now))
        return other


def batch_of(*records: CoordinatorRecord, offset: int, **fields: object) -> RecordBatch:
    """Records as a batch of their own."""
    rows = [Record(key=record.key, value=record.value) for record in records]
    # arg-type: keyword arguments of several types
    return RecordBatch(build_batch(rows, base_offset=offset, **fields))  # type: ignore[arg-type]


def of_producer(producer: WritingProducer | None) -> dict[str, object]:
    """The producer fields of a transactional batch."""
    if producer is None:
        return {}
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "base_sequence": 0,
        "transactional": True,
    }
