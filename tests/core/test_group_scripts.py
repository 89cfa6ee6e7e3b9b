"""Scripts of groups (tests/core/scripts): coordinators of both group types, and kraftsim's members.
Source: KIP-62, KIP-345, KIP-394, KIP-848, KIP-1071.
"""

from collections.abc import Callable

import msgspec
import pytest

from kraftsim.clients.rules_consumer_member import ConsumerGroupMembership
from kraftsim.clients.rules_group_member import GroupMember
from kraftsim.clients.rules_member_steps import (
    RANGE,
    AssignmentChanged,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswered,
    CountPartitions,
    GroupProtocol,
    HeartbeatAnswered,
    Joined,
    LeaveAsked,
    Left,
    MemberLost,
    MemberQuestionLost,
    MemberSettings,
    MembershipEffect,
    MembershipInput,
    MemberStarted,
    NameTopics,
    PartitionsCounted,
    Released,
    ReleaseWanted,
    SendMemberRequest,
    StreamsHeartbeatAnswered,
    Subscriber,
    SubscriptionChanged,
    Synced,
    TopicsNamed,
)
from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_streams_member import StreamsGroupMembership
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
)
from kraftsim.groups.rules_timing import (
    CommitAnswer,
    DeletionAnswer,
    GroupAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    OtherAnswer,
    SyncAnswer,
)
from protocol.errors import ErrorCode
from tests.core.consumers_harness import ConsumersHarness, id_of
from tests.core.effect_format import spelt
from tests.core.groups_harness import GroupsHarness

AnyMember = GroupMember | ConsumerGroupMembership | StreamsGroupMembership


class ClassicGroupDriver:
    """A coordinator and the members of one classic group, by names: "join a", "pass 3000", "sync a
    1 a=x b=y", "commit 5 by a in 1".
    """

    def __init__(self) -> None:
        self.harness = GroupsHarness()
        self.asked: dict[int, tuple[str, str]] = {}
        """The pending requests: kind and member."""
        self.ids: dict[str, str] = {}

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        said: str | None = getattr(self, f"do_{verb.replace('-', '_')}")(*words)
        answered = {
            number: self.asked.pop(number)
            for number in list(self.asked)
            if number in self.harness.answers
        }
        lines = [
            f"{what} of {name}: {self._line(name, self.harness.answers[number])}"
            for number, (what, name) in answered.items()
        ]
        return "\n".join([*([said] if said else []), *lines])

    def do_join(self, name: str, *traits: str) -> None:
        """`takes-id`: a client that gets its id first (KIP-394); `static`: it rejoins under its
        instance id (KIP-345); else protocols.
        """
        protocols = (
            " ".join(each for each in traits if each not in ("takes-id", "static")) or "range"
        )
        waiter = self.harness.join(
            "" if "static" in traits else self.ids.get(name, ""),
            fresh=f"{name}{self.harness.now_ms}" if "static" in traits else name,
            protocols=protocols,
            takes_id_first="takes-id" in traits,
            instance=name if "static" in traits else None,
        )
        self.asked[waiter] = ("join", name)

    def do_sync(self, name: str, generation_id: str, *shares: str) -> None:
        given = {
            self.ids[member].replace("-", "_"): share.encode()
            for member, _, share in (each.partition("=") for each in shares)
        }
        self.asked[self.harness.sync(self.ids[name], int(generation_id), **given)] = ("sync", name)

    def do_beat(self, name: str, generation_id: str) -> str:
        return (
            f"heartbeat of {name}: "
            f"{self.harness.heartbeat(self.ids[name], int(generation_id)).name}"
        )

    def do_leave(self, name: str) -> None:
        self.harness.leave(self.ids.pop(name))

    def do_pass(self, milliseconds: str) -> None:
        self.harness.pass_time(int(milliseconds))

    def do_commit(self, offset: str, by: str, name: str, of: str, generation_id: str) -> None:
        waiter = self.harness.commit(
            int(offset), member_id=self.ids.get(name, name), generation_id=int(generation_id)
        )
        self.asked[waiter] = ("commit", name)

    def do_pending(self, offset: str) -> None:
        self.asked[self.harness.commit_in_transaction(int(offset))] = ("commit", "a transaction")

    def do_end(self, how: str) -> None:
        self.harness.end_transaction(commits=how == "commit")

    def do_offset(self, *stable: str) -> str:
        found = self.harness.committed(require_stable=bool(stable))
        return f"offset {found.name if isinstance(found, ErrorCode) else found}"

    def do_state(self) -> str:
        group = self.harness.group
        return (
            f"{group.state.name} in generation {group.generation_id}: "
            f"{', '.join(group.members) or 'no members'}"
        )

    def do_move(self) -> None:
        """Another coordinator loads the log."""
        self.harness = self.harness.reloaded()
        self.asked.clear()

    def _line(self, name: str, answer: GroupAnswer) -> str:
        match answer:
            case JoinAnswer(error=ErrorCode.NONE):
                self.ids[name] = answer.member_id
                members = ", ".join(each.member_id for each in answer.members)
                leads = f", leads {members}" if answer.members else f", leader {answer.leader_id}"
                return (
                    f"{answer.member_id} in generation {answer.generation_id} by "
                    f"{answer.protocol_name}{leads}"
                )
            case JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = answer.member_id
                return f"MEMBER_ID_REQUIRED, {answer.member_id}"
            case SyncAnswer(error=ErrorCode.NONE):
                return answer.assignment.decode() or "nothing"
            case JoinAnswer() | SyncAnswer():
                return answer.error.name
            case CommitAnswer(errors):
                return spelt(errors)
            case HeartbeatAnswer() | DeletionAnswer() | OtherAnswer():
                raise AssertionError("consumer groups and deletions have drivers of their own")


class ConsumerGroupDriver:
    """A coordinator and the members of one consumer group (KIP-848): "topic t 3", "join a t", "beat
    a", "leave a".
    """

    def __init__(self) -> None:
        self.harness = ConsumersHarness()

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        return getattr(self, f"do_{verb}")(*words) or ""

    def do_topic(self, name: str, count: str) -> None:
        self.harness.topics.make(name, int(count))

    def do_join(self, name: str, *topics: str) -> str:
        return self._line(name, self.harness.join(name, *topics))

    def do_beat(self, *names: str) -> str:
        return "\n".join(self._line(name, self.harness.beat(name)) for name in names)

    def do_keeps(self, name: str) -> str:
        """A heartbeat without owned partitions: the member has not completed its revocation yet."""
        return self._line(name, self.harness.ask(name, self.harness.epochs[name]))

    def do_stale(self, name: str, epoch: str) -> str:
        return self._line(name, self.harness.ask(name, int(epoch)))

    def do_leave(self, name: str) -> str:
        said = self._line(name, self.harness.ask(name, -1))
        self.harness.gone(name)
        return said

    def do_pass(self, milliseconds: str) -> None:
        self.harness.pass_time(int(milliseconds))

    def do_state(self) -> str:
        group = self.harness.consumers
        return (
            f"{group.state.name} in epoch {group.group_epoch}, assigned in "
            f"{group.assignment_epoch}: {', '.join(group.members) or 'no members'}"
        )

    def do_move(self) -> None:
        """Another coordinator loads the log."""
        self.harness = self.harness.replayed_again()

    def _line(self, name: str, answer: HeartbeatAnswer) -> str:
        if answer.error is not ErrorCode.NONE:
            return f"{name}: {answer.error.name}"
        names = {id_of(each): each for each in self.harness.topics.names()}
        assigned = answer.assigned
        shares = [
            f"{names[topic]}-{number}"
            for topic, numbers in (assigned or {}).items()
            for number in numbers
        ]
        return (
            f"{name}: epoch {answer.member_epoch}, "
            f"{'as before' if assigned is None else ' '.join(shares) or 'nothing'}"
        )


class MemberDriver:
    """A kraftsim member of topic t: "start", "found 1", "joined m 1 range leads a m", "counted 3",
    "synced 0 1".
    """

    def __init__(self) -> None:
        self.do_member(RANGE)

    def do_member(self, assignor: str) -> None:
        """Start over with an assignor."""
        self.now_ms = 0
        self.member: AnyMember = GroupMember(
            MemberSettings(
                group_id="g",
                topics=("t",),
                assignor=assignor,
                heartbeat_interval_ms=1000,
                retry_backoff_ms=100,
            )
        )

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        before = self.member.state
        effects: list[MembershipEffect] = (
            getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        )
        states = (
            [f"is {self.member.state.name}"]
            if self.member.state is not before and verb != "member"
            else []
        )
        return "\n".join([*map(self._line, effects), *states])

    def do_start(self) -> list[MembershipEffect]:
        return self._step(MemberStarted())

    def do_found(self, broker_id: str) -> list[MembershipEffect]:
        return self._step(CoordinatorFound(kind=CoordinatorKind.GROUP, broker_id=int(broker_id)))

    def do_not_found(self, error: str = "") -> list[MembershipEffect]:
        return self._step(
            CoordinatorLost(
                kind=CoordinatorKind.GROUP, error_code=ErrorCode[error] if error else None
            )
        )

    def do_joined(
        self, member_id: str, generation_id: str, protocol: str, leads: str = "", *members: str
    ) -> list[MembershipEffect]:
        return self._step(
            Joined(
                error_code=ErrorCode.NONE,
                member_id=member_id,
                generation_id=int(generation_id),
                protocol=protocol,
                is_leader=bool(leads),
                members=tuple(Subscriber(member_id=each, topics=("t",)) for each in members),
            )
        )

    def do_not_joined(self, error: str, member_id: str = "") -> list[MembershipEffect]:
        return self._step(Joined(error_code=ErrorCode[error], member_id=member_id))

    def do_counted(self, *count: str) -> list[MembershipEffect]:
        return self._step(PartitionsCounted({"t": int(count[0])} if count else None))

    def do_synced(self, *partitions: str) -> list[MembershipEffect]:
        return self._step(
            Synced(
                error_code=ErrorCode.NONE,
                partitions=tuple(TopicPartition("t", int(each)) for each in partitions),
            )
        )

    def do_not_synced(self, error: str) -> list[MembershipEffect]:
        return self._step(Synced(error_code=ErrorCode[error]))

    def do_beaten(self, error: str = "NONE") -> list[MembershipEffect]:
        return self._step(HeartbeatAnswered(ErrorCode[error]))

    def do_lose_answer(self) -> list[MembershipEffect]:
        return self._step(MemberQuestionLost())

    def do_released(self) -> list[MembershipEffect]:
        return self._step(Released())

    def do_leave(self) -> list[MembershipEffect]:
        return self._step(LeaveAsked())

    def do_left(self) -> list[MembershipEffect]:
        return self._step(Left())

    def do_at(self, now_ms: str) -> list[MembershipEffect]:
        self.now_ms = int(now_ms)
        return self._step(TimePassed())

    def _step(self, happened: MembershipInput) -> list[MembershipEffect]:
        return self.member.step(happened, self.now_ms)

    def _line(self, effect: MembershipEffect) -> str:
        match effect:
            case FindCoordinator(key=key):
                return f"find coordinator of group {key}"
            case SendMemberRequest(broker_id=broker_id, question=question):
                return f"to {broker_id}: {spelt(question)}"
            case CountPartitions(topics):
                return f"count partitions of {' '.join(topics)}"
            case AssignmentChanged(generation_id=generation_id, partitions=partitions, added=added):
                return (
                    f"reads {spelt(partitions)} in generation {generation_id}, {spelt(added)} added"
                )
            case ReleaseWanted(partitions):
                return f"revoke {spelt(partitions)}"
            case NameTopics(topic_ids):
                return f"look up {' '.join(_letter(each) for each in topic_ids)}"
            case MemberLost(error_code=error, is_fatal=is_fatal):
                return f"lost membership: {error.name}{', fatal' if is_fatal else ''}"


TOPICS = {"t": bytes(15) + b"t", "u": bytes(15) + b"u"}


class ConsumerMemberDriver(MemberDriver):
    """A member of a consumer group: "reached 3 t-0 t-1" answers a heartbeat with epoch 3 and an
    assignment, "reached 3" without one.
    """

    def __init__(self) -> None:
        self.do_member()

    def do_member(self, *traits: str) -> None:
        """`static`: it has an instance id; `back-soon`: it leaves for a while."""
        self.now_ms = 0
        settings = MemberSettings(
            group_id="g",
            topics=("t",),
            rebalance_timeout_ms=9000,
            heartbeat_interval_ms=1000,
            retry_backoff_ms=100,
            group_protocol=GroupProtocol.CONSUMER,
            group_instance_id="i" if "static" in traits else None,
            returns_soon="back-soon" in traits,
        )
        self.member = ConsumerGroupMembership(settings, "m")

    def do_subscribe(self, *topics: str) -> list[MembershipEffect]:
        """Topics, or an expression in slashes."""
        expressions = [each.strip("/") for each in topics if each.startswith("/")]
        names = tuple(each for each in topics if not each.startswith("/"))
        return self._step(SubscriptionChanged(names, expressions[0] if expressions else None))

    def do_reached(self, epoch: str, *partitions: str) -> list[MembershipEffect]:
        """`none`: an empty assignment."""
        assigned: dict[bytes, tuple[int, ...]] = {}
        for each in partitions:
            if each != "none":
                topic, _, number = each.partition("-")
                assigned[TOPICS[topic]] = (*assigned.get(TOPICS[topic], ()), int(number))
        return self._step(
            ConsumerHeartbeatAnswered(
                error_code=ErrorCode.NONE,
                member_epoch=int(epoch),
                heartbeat_interval_ms=1000,
                assigned=assigned if partitions else None,
            )
        )

    def do_refused(self, error: str) -> list[MembershipEffect]:
        return self._step(ConsumerHeartbeatAnswered(error_code=ErrorCode[error]))

    def do_named(self, *topics: str) -> list[MembershipEffect]:
        """`lost`: there is no response."""
        names = None if "lost" in topics else {TOPICS[each]: each for each in topics}
        return self._step(TopicsNamed(names))

    def _line(self, effect: MembershipEffect) -> str:
        match effect:
            case SendMemberRequest(broker_id=broker_id, question=ConsumerHeartbeat() as asked):
                owned = (
                    ""
                    if asked.owned is None
                    else " owned="
                    + spelt(
                        [
                            TopicPartition(_letter(topic_id), number)
                            for topic_id, numbers in asked.owned.items()
                            for number in numbers
                        ]
                    )
                )
                fields = spelt(msgspec.structs.replace(asked, owned=None))
                return f"to {broker_id}: {fields}{owned}"
        return super()._line(effect)


class StreamsMemberDriver(MemberDriver):
    """A member of a streams group whose subtopology `a` reads topics t and u, and `b` topic v:
    "reached 3 a-0 a-1" answers a heartbeat with epoch 3 and tasks, "reached 3" without.
    """

    def __init__(self) -> None:
        self.do_member()

    def do_member(self, *traits: str) -> None:
        """`static`: it has an instance id; `back-soon`: it leaves for a while."""
        self.now_ms = 0
        settings = MemberSettings(
            group_id="g",
            topics=(),
            rebalance_timeout_ms=9000,
            heartbeat_interval_ms=1000,
            retry_backoff_ms=100,
            group_protocol=GroupProtocol.STREAMS,
            group_instance_id="i" if "static" in traits else None,
            returns_soon="back-soon" in traits,
            subtopologies={"a": ("t", "u"), "b": ("v",)},
            process_id="p",
        )
        self.member = StreamsGroupMembership(settings, "m")

    def do_reached(self, epoch: str, *tasks: str) -> list[MembershipEffect]:
        """`none`: no tasks."""
        active: dict[str, tuple[int, ...]] = {}
        for each in tasks:
            if each != "none":
                name, _, number = each.partition("-")
                active[name] = (*active.get(name, ()), int(number))
        return self._step(
            StreamsHeartbeatAnswered(
                error_code=ErrorCode.NONE,
                member_epoch=int(epoch),
                heartbeat_interval_ms=1000,
                active=active if tasks else None,
            )
        )

    def do_refused(self, error: str) -> list[MembershipEffect]:
        return self._step(StreamsHeartbeatAnswered(error_code=ErrorCode[error]))


def _letter(topic_id: bytes) -> str:
    return topic_id[-1:].decode()


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("consumer_member_joins", ConsumerMemberDriver),
        ("consumer_member_reconciles", ConsumerMemberDriver),
        ("consumer_member_is_fenced", ConsumerMemberDriver),
        ("consumer_member_leaves", ConsumerMemberDriver),
        ("streams_member_takes_tasks", StreamsMemberDriver),
        ("streams_member_is_fenced", StreamsMemberDriver),
        ("group_rebalances", ClassicGroupDriver),
        ("group_member_sessions", ClassicGroupDriver),
        ("group_commits_offsets", ClassicGroupDriver),
        ("consumer_group_assignment", ConsumerGroupDriver),
        ("consumer_group_membership", ConsumerGroupDriver),
        ("member_leader_and_follower", MemberDriver),
        ("member_revocation", MemberDriver),
        ("member_is_expelled", MemberDriver),
    ],
)
def test_group_scripts(
    script: str,
    driver: type[ClassicGroupDriver | ConsumerGroupDriver | MemberDriver],
    run_script: Callable[[str, Callable[[str], str]], None],
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, driver().answer)
