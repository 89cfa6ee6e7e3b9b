"""Elections, replication and changes of voters, told in tests/core/scripts.   Source: KIP-595, KIP-630, KIP-853, KIP-996, KAFKA-15489."""

from collections.abc import Callable

import pytest

from kraftsim.core.raft.settings import RaftSettings
from protocol.batches import split_batches
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from protocol.schema import Message
from tests.core.quorum_lab import CLUSTER, LISTENER, LabNode
from tests.core.quorum_table import Letter, Table

ROUNDS_MAX = 200


class Talk:
    """A table that is told by lines such as "time-out 1" or "deliver 1>2". Letters lie there until they are delivered or lost."""

    def __init__(self) -> None:
        self.table = Table(size=3)

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        said: list[str] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        told, self.table.lines = self.table.lines, []
        return "\n".join([*told, *said])

    def do_voters(self, count: str, *traits: str) -> None:
        """So many nodes; `pre-vote`; `formatted N`: only the first N of them vote, as it stands in the log."""
        formatted = tuple(range(1, int(traits[traits.index("formatted") + 1]) + 1)) if "formatted" in traits else ()
        self.table = Table(size=int(count), settings=RaftSettings(has_pre_vote="pre-vote" in traits), formatted=formatted)
        for node in self.table.nodes.values():
            node.start()

    def do_start(self, node_id: str) -> None:
        self._node(node_id).start()

    def do_crash(self, node_id: str) -> None:
        self._node(node_id).crash(power_loss=False)

    def do_power_loss(self, node_id: str) -> None:
        self._node(node_id).crash(power_loss=True)

    def do_time_out(self, node_id: str) -> None:
        """Let the clock come to where a node acts by itself, and let it act."""
        self.table.time_out(self._node(node_id))

    def do_wait(self, duration_ms: str) -> None:
        """Let the clock go on without anybody looking at it."""
        self.table.now_ms += int(duration_ms)

    def do_look(self, *node_ids: str) -> None:
        """Let nodes look at the clock: they act if it is time."""
        for node_id in node_ids:
            self._node(node_id).pump()

    def do_expire(self, node_id: str) -> None:
        """Let a leader answer the Fetches that have waited for long enough."""
        self._node(node_id)._expire_parked()

    def do_deliver(self, way: str, name: str = "") -> list[str]:
        for letter in self._letters(way, name)[:1]:
            self.table.deliver(letter)
            return []
        return ["no such letter"]

    def do_lose(self, way: str, name: str = "") -> list[str]:
        found = self._letters(way, name)
        for letter in found:
            self.table.lose(letter)
        return [] if found else ["no such letter"]

    def do_part(self, one: str, other: str) -> None:
        self.table.part(int(one), int(other))

    def do_mend(self) -> None:
        self.table.mend()

    def do_letters(self) -> list[str]:
        return [f"{letter.sender}>{letter.receiver} {letter.name}{' answer' if letter.request else ''}" for letter in self.table.letters]

    def do_settle(self, *quiet: str) -> list[str]:
        """Deliver everything, and what comes of it, until nothing is under way; `quietly`: and say nothing of it."""
        for _ in range(ROUNDS_MAX):
            if not self.table.letters:
                break
            self.table.deliver(self.table.letters[0])
        if quiet:
            self.table.lines.clear()
        return ["there is no end of letters"] if self.table.letters else []

    def do_write(self, node_id: str) -> list[str]:
        node = self._node(node_id)
        if not node.leads:
            return ["does not lead"]
        node.write()
        return []

    def do_slow(self, node_id: str) -> None:
        """From now on nothing that this node writes is durable."""
        self.table.hold_flushes(int(node_id))

    def do_flush(self, node_id: str) -> None:
        """What waited becomes durable, and the disk is quick again."""
        self.table.release_flushes(int(node_id))

    def do_snapshot(self, node_id: str) -> list[str]:
        snapshot = self._node(node_id).take_snapshot()
        return [f"snapshot below {snapshot.end_offset} of epoch {snapshot.epoch}"]

    def do_add_voter(self, leader: str, node_id: str) -> None:
        node = self._node(node_id)
        listeners = [Listener(name=LISTENER, host="lab", port=9000 + node.id)]
        self._ask(
            leader,
            AddRaftVoterRequest(cluster_id=CLUSTER, timeout_ms=5000, voter_id=node.id, voter_directory_id=node.key.directory_id, listeners=listeners),
        )

    def do_remove_voter(self, leader: str, node_id: str) -> None:
        node = self._node(node_id)
        self._ask(leader, RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=node.id, voter_directory_id=node.key.directory_id))

    def do_show(self) -> list[str]:
        return [self._shown(node) for node in self.table.nodes.values()]

    def _ask(self, leader: str, request: Message) -> None:
        def answered(body: Message) -> None:
            self.table.lines.append(f"{type(request).__name__.removesuffix('Request')} is answered {ErrorCode(body.error_code).name}")  # type: ignore[attr-defined]

        self._node(leader).receive(request, answered)

    def _node(self, node_id: str) -> LabNode:
        return self.table.nodes[int(node_id)]

    def _letters(self, way: str, name: str) -> list[Letter]:
        sender, receiver = way.split(">")
        return [
            letter
            for letter in self.table.letters
            if sender in (str(letter.sender), "*") and receiver in (str(letter.receiver), "*") and name in ("", letter.name)
        ]

    def _shown(self, node: LabNode) -> str:
        state = node.disk.state
        stored = "" if state is None else f"stored epoch {state.leader_epoch} leader {state.leader_id} voted {state.voted_id}"
        if node.replica is None:
            return f"{node.id}: down; {stored}"
        quorum = node.replica.quorum
        log = quorum.log
        batches = " ".join(f"{batch.base_offset}@{batch.partition_leader_epoch}" for each in node.disk.batches for batch in split_batches(each))
        role = f"{type(quorum.role).__name__} in epoch {quorum.epoch}"
        return f"{node.id}: {role}; {stored}; log from {log.start_offset} [{batches}] ends {log.end_offset}, committed {log.high_watermark}"


@pytest.mark.parametrize(
    "script",
    [
        "quorum_election",
        "quorum_election_is_split",
        "quorum_vote_is_given_once",
        "quorum_pre_vote",
        "quorum_check_quorum",
        "quorum_logs_diverge",
        "quorum_leader_comes_back",
        "quorum_flushes",
        "quorum_snapshot",
        "quorum_voter_joins",
        "quorum_voter_leaves",
        "quorum_voters_taken_back",
    ],
)
def test_quorums_behave_as_their_scripts_tell(script: str, play: Callable[[str, Callable[[str], str]], None]) -> None:
    """Each script says in its comments which rule it plays."""
    play(script, Talk().answer)
