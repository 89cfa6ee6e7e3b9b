"""Scripts of elections, replication and voter changes (tests/core/scripts).

Source: KIP-595, KIP-630, KIP-853, KIP-996, KAFKA-15489.
"""

from collections.abc import Callable

import pytest

from kraftsim.raft.rules_settings import RaftSettings
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from protocol.records.batches import split_batches
from protocol.schema import Message
from tests.core.quorum_harness import CLUSTER, LISTENER, HarnessNode
from tests.core.quorum_stepper import PendingMessage, Table

ROUNDS_MAX = 200


class ScriptDriver:
    """A quorum driven by lines such as "time-out 1" or "deliver 1>2".

    Messages wait until they are delivered or lost.
    """

    def __init__(self) -> None:
        self.table = Table(size=3)

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        said: list[str] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        lines, self.table.lines = self.table.lines, []
        return "\n".join([*lines, *said])

    def do_voters(self, count: str, *traits: str) -> None:
        """The number of nodes; `pre-vote`; `formatted N`: only the first N of them are voters, as
        in the log.
        """
        formatted = (
            tuple(range(1, int(traits[traits.index("formatted") + 1]) + 1))
            if "formatted" in traits
            else ()
        )
        self.table = Table(
            size=int(count),
            settings=RaftSettings(has_pre_vote="pre-vote" in traits),
            formatted=formatted,
        )
        for node in self.table.nodes.values():
            node.start()

    def do_start(self, node_id: str) -> None:
        self._node(node_id).start()

    def do_crash(self, node_id: str) -> None:
        self._node(node_id).crash(power_loss=False)

    def do_power_loss(self, node_id: str) -> None:
        self._node(node_id).crash(power_loss=True)

    def do_time_out(self, node_id: str) -> None:
        """Advance the clock to a node's next deadline, and let it act."""
        self.table.time_out(self._node(node_id))

    def do_wait(self, duration_ms: str) -> None:
        """Advance the clock without letting a node act."""
        self.table.now_ms += int(duration_ms)

    def do_look(self, *node_ids: str) -> None:
        """Let nodes check the clock: they act if a deadline has passed."""
        for node_id in node_ids:
            self._node(node_id).pump()

    def do_expire(self, node_id: str) -> None:
        """Let a leader answer the Fetches that have waited long enough."""
        self._node(node_id)._expire_parked()

    def do_deliver(self, way: str, name: str = "") -> list[str]:
        for message in self._messages(way, name)[:1]:
            self.table.deliver(message)
            return []
        return ["no such message"]

    def do_lose(self, way: str, name: str = "") -> list[str]:
        found = self._messages(way, name)
        for message in found:
            self.table.lose(message)
        return [] if found else ["no such message"]

    def do_partition(self, one: str, other: str) -> None:
        self.table.part(int(one), int(other))

    def do_heal(self) -> None:
        self.table.heal()

    def do_messages(self) -> list[str]:
        return [
            (
                f"{message.sender}>{message.receiver} "
                f"{message.name}{' answer' if message.request else ''}"
            )
            for message in self.table.pending
        ]

    def do_settle(self, *quiet: str) -> list[str]:
        """Deliver all messages, and their consequences, until none is in flight; `quietly`: without
        output.
        """
        for _ in range(ROUNDS_MAX):
            if not self.table.pending:
                break
            self.table.deliver(self.table.pending[0])
        if quiet:
            self.table.lines.clear()
        return ["messages do not settle"] if self.table.pending else []

    def do_write(self, node_id: str) -> list[str]:
        node = self._node(node_id)
        if not node.leads:
            return ["does not lead"]
        node.write()
        return []

    def do_slow(self, node_id: str) -> None:
        """From now on no write of this node becomes durable."""
        self.table.hold_flushes(int(node_id))

    def do_flush(self, node_id: str) -> None:
        """Pending writes become durable, and the disk is fast again."""
        self.table.release_flushes(int(node_id))

    def do_snapshot(self, node_id: str) -> list[str]:
        snapshot = self._node(node_id).take_snapshot()
        return [f"snapshot below {snapshot.end_offset} of epoch {snapshot.epoch}"]

    def do_add_voter(self, leader: str, node_id: str) -> None:
        node = self._node(node_id)
        listeners = [Listener(name=LISTENER, host="lab", port=9000 + node.id)]
        self._ask(
            leader,
            AddRaftVoterRequest(
                cluster_id=CLUSTER,
                timeout_ms=5000,
                voter_id=node.id,
                voter_directory_id=node.key.directory_id,
                listeners=listeners,
            ),
        )

    def do_remove_voter(self, leader: str, node_id: str) -> None:
        node = self._node(node_id)
        self._ask(
            leader,
            RemoveRaftVoterRequest(
                cluster_id=CLUSTER, voter_id=node.id, voter_directory_id=node.key.directory_id
            ),
        )

    def do_show(self) -> list[str]:
        return [self._shown(node) for node in self.table.nodes.values()]

    def _ask(self, leader: str, request: Message) -> None:
        def answered(body: Message) -> None:
            self.table.lines.append(
                f"{type(request).__name__.removesuffix('Request')} answer "
                f"{ErrorCode(body.error_code).name}"
            )

        self._node(leader).receive(request, answered)

    def _node(self, node_id: str) -> HarnessNode:
        return self.table.nodes[int(node_id)]

    def _messages(self, way: str, name: str) -> list[PendingMessage]:
        sender, receiver = way.split(">")
        return [
            message
            for message in self.table.pending
            if sender in (str(message.sender), "*")
            and receiver in (str(message.receiver), "*")
            and name in ("", message.name)
        ]

    def _shown(self, node: HarnessNode) -> str:
        state = node.disk.state
        stored = (
            ""
            if state is None
            else (
                f"stored epoch {state.leader_epoch} leader {state.leader_id} voted {state.voted_id}"
            )
        )
        if node.replica is None:
            return f"{node.id}: down; {stored}"
        quorum = node.replica.quorum
        log = quorum.log
        batches = " ".join(
            f"{batch.base_offset}@{batch.partition_leader_epoch}"
            for each in node.disk.batches
            for batch in split_batches(each)
        )
        role = f"{type(quorum.role).__name__} in epoch {quorum.epoch}"
        return (
            f"{node.id}: {role}; {stored}; log from {log.start_offset} [{batches}] ends "
            f"{log.end_offset}, committed {log.high_watermark}"
        )


@pytest.mark.parametrize(
    "script",
    [
        "quorum_election",
        "quorum_split_vote",
        "quorum_durable_vote",
        "quorum_pre_vote",
        "quorum_check_quorum",
        "quorum_log_divergence",
        "quorum_leader_restart",
        "quorum_flushes",
        "quorum_snapshot",
        "quorum_voter_joins",
        "quorum_voter_leaves",
        "quorum_voter_change_reverted",
    ],
)
def test_quorum_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ScriptDriver().answer)
