"""The conversation of one probe: its clients, their names, and what each of them has received so
far.

Names are new for each probe, so that probes are independent. All requests go to one address: a
single node that hosts all coordinators.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftsim.conformance.expect import Unmet, error_name
from kraftsim.conformance.group_client import GroupClient
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

UNKNOWN_ID = "nobody"
NOBODYS_ID = 987_654_321_000
PARTITIONS = 2
WAIT_SECONDS = 8.0
PAUSE_SECONDS = 0.01


class NotOffered(Exception):
    """The node does not support the version of an API; the message contains the supported ones."""


@dataclass(slots=True)
class Producer:
    """The state of one producer."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class ProbeMember:
    """The state of one group member."""

    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None


@dataclass(slots=True)
class ProbeConversation:
    """The state that the steps of a probe share."""

    target: Target
    peer: Peer
    word: str
    producers: dict[str, Producer] = field(default_factory=dict)
    members: dict[str, ProbeMember] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    at_end: list[Callable[[], object]] = field(default_factory=list)
    """What is undone after the conversation, so that the next one finds the node unchanged."""
    _topic: TargetTopic | None = None
    _group: GroupClient | None = None

    @classmethod
    def begin(cls, target: Target) -> "ProbeConversation":
        """Start a conversation with its own names."""
        return cls(target, target.peer(), target.fresh_name("probe"))

    def close(self) -> None:
        """Restore the node, and close the connection."""
        for undo in self.at_end:
            undo()
        self.peer.close()

    def reconnect(self) -> None:
        """Reconnect after the node closed the connection."""
        self.peer.close()
        self.peer = self.target.peer()

    def producer(self, client_name: str) -> Producer:
        """Return a producer by its short name; the one called `nobody` has an id that was never
        allocated.
        """
        if client_name not in self.producers:
            self.producers[client_name] = Producer(f"{self.word}-{client_name}")
            if client_name == UNKNOWN_ID:
                (
                    self.producers[client_name].producer_id,
                    self.producers[client_name].producer_epoch,
                ) = NOBODYS_ID, 0
        return self.producers[client_name]

    def member(self, client_name: str) -> ProbeMember:
        """Return a member by its short name; one that never joined has an id unknown to the
        group.
        """
        return self.members.get(client_name) or ProbeMember(
            member_id=f"{self.word}-{client_name}" if client_name else ""
        )

    @property
    def topic(self) -> str:
        """The topic of this probe, with two partitions; created on first use."""
        return self._made().name

    @property
    def topic_id(self) -> bytes:
        """The id of that topic."""
        return self._made().topic_id

    def _made(self) -> TargetTopic:
        if self._topic is None:
            self._topic = self.target.topic(PARTITIONS)
        return self._topic

    @property
    def group(self) -> GroupClient:
        """The group of this probe."""
        if self._group is None:
            self._group = GroupClient(self.target)
        return self._group

    def topic_named(self, word: str) -> str:
        """Return the probe's topic for the empty name, else a topic of another name, which need not
        exist.
        """
        return word or self.topic

    def letter(self, producer_id: int) -> str:
        """Return a letter for a producer id: A for the first one in this probe.

        Ids themselves differ from run to run.
        """
        if producer_id < 0:
            return str(producer_id)
        if producer_id == NOBODYS_ID:
            return UNKNOWN_ID
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return chr(ord("A") + self.ids.index(producer_id))

    def offered(self, key: ApiKey, version: int) -> int:
        """Return the version if the node supports it. Raises NotOffered."""
        if key not in self.target.ranges():
            raise NotOffered(key.name)
        first, last = self.target.ranges()[key]
        if not first <= version <= last:
            raise NotOffered(f"{key.name} has {first} to {last}")
        return version


def named(code: int) -> str:
    """Return number and name of an error; `ok` for none."""
    return "ok" if code == ErrorCode.NONE else error_name(code)


def give_up_at() -> float:
    """Return the deadline of a wait that begins now."""
    return time.monotonic() + WAIT_SECONDS


def pause_until(deadline: float, what: str) -> None:
    """Wait a moment. Raises Unmet after the deadline."""
    if time.monotonic() > deadline:
        raise Unmet(f"time-out: {what}")
    time.sleep(PAUSE_SECONDS)
