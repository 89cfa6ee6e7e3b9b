"""Scripts of one partition on its leader and on a follower (tests/core/scripts).

Source: KIP-101, KIP-497, KIP-595, KIP-841, KIP-903, KIP-966, kafka.cluster.Partition,
kafka.server.AbstractFetcherThread.
"""

from collections.abc import Callable

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.rules_append import ALL_REPLICAS, AppendDecision, AppendRules
from kraftsim.partitions.rules_follower import (
    Accept,
    BackOff,
    Diverging,
    FetchWish,
    Following,
    OffsetWish,
    RestartAt,
    TruncateTo,
)
from kraftsim.partitions.rules_leader import IsrProposal, LeaderAndIsrState, LeaderRules
from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.partitions.rules_reading import decide_read
from kraftsim.partitions.rules_replica import AgreedIsr, PartitionReplica
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from tests.core.batches import make_batch

OWN_ID = 1
LAG_MAX_MS = 30_000
BEGIN_MS = 1_000_000


class ScriptDriver:
    """Replica 1 of replicas 1, 2 and 3, driven by lines such as "append 3" or "fetch 2 5"."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS
        self.notes: list[Event] = []
        self.proposal: IsrProposal | None = None
        self.fenced: set[int] = set()
        self.min_in_sync = 1
        self.replica = self._new()

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        before = self.replica.high_watermark
        said = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or ""
        moved = (
            f"high watermark {self.replica.high_watermark}"
            if self.replica.high_watermark != before
            else ""
        )
        return "\n".join(line for line in (said, moved) if line)

    # The leader's side
    # ----------------------------------------------------------------------------------------------

    def do_lead(self, epoch: str, isr: str, partition_epoch: str, min_in_sync: str = "1") -> str:
        isr = isr.removeprefix("isr=")
        self.min_in_sync = int(min_in_sync)
        self.replica.rules = AppendRules(min_in_sync_replicas=self.min_in_sync)
        leader_and_isr = LeaderAndIsrState(
            leader_epoch=int(epoch),
            partition_epoch=int(partition_epoch),
            replicas=(1, 2, 3),
            isr=_ids(isr),
        )
        rules = LeaderRules(lag_max_ms=LAG_MAX_MS, min_in_sync=self.min_in_sync)
        self.replica.lead(
            leader_and_isr,
            now_ms=self.now_ms,
            rules=rules,
            eligible=lambda replica_id, _: replica_id not in self.fenced,
        )
        return self._shown()

    def do_at(self, now_ms: str) -> None:
        self.now_ms = BEGIN_MS + int(now_ms)

    def do_fence(self, replica_id: str) -> None:
        self.fenced.add(int(replica_id))

    def do_unfence(self, replica_id: str) -> None:
        self.fenced.discard(int(replica_id))

    def do_append(self, count: str) -> str:
        decision = self.replica.decide_append(
            make_batch(0, int(count) - 1, producer_id=-1, epoch=-1), ALL_REPLICAS, self.now_ms
        )
        if isinstance(decision, Refusal):
            return f"rejected {decision.error.name}"
        assert isinstance(decision, AppendDecision), "there are no producers"
        first = self.replica.log_end_offset
        self.replica.apply_append(decision)
        self.replica.advance_alone(self.now_ms)
        return f"offsets {first} .. {self.replica.log_end_offset - 1}"

    def do_fetch(self, replica_id: str, offset: str, epoch: str = "") -> str:
        """A follower's Fetch, with its current leader epoch."""
        leader_epoch = int(epoch) if epoch else self.replica.leader_epoch
        refusal = self.replica.refuse_follower(int(replica_id), leader_epoch)
        if refusal is not None:
            return f"rejected {refusal.error.name}"
        fetched = self.replica.on_follower_fetch(
            int(replica_id), int(offset), 0, now_ms=self.now_ms, broker_epoch=int(replica_id)
        )
        return self._proposed(fetched.proposal)

    def do_compare(self, offset: str, last_epoch: str) -> str:
        """The response to a follower whose log ends at an offset with a record of an epoch."""
        found = decide_read(
            self.replica,
            int(offset),
            current_leader_epoch=self.replica.leader_epoch,
            last_fetched_epoch=int(last_epoch),
            is_follower=True,
        )
        match found:
            case Refusal():
                return f"rejected {found.error.name}"
            case Diverging():
                return f"diverges at {found.end_offset} of epoch {found.leader_epoch}"
        return "agrees"

    def do_shrink(self) -> str:
        return self._proposed(self.replica.shrinking(self.now_ms)) or "no replica is behind"

    def do_accepted(self, isr: str, partition_epoch: str) -> str:
        assert self.proposal is not None, "something was proposed"
        after = self.replica.on_isr_answer(
            self.proposal,
            AgreedIsr(self.replica.leader_epoch, int(partition_epoch), _ids(isr)),
            self.now_ms,
        )
        return f"{after.name.lower()}; {self._shown()}"

    def do_rejected(self, error: str) -> str:
        assert self.proposal is not None, "something was proposed"
        after = self.replica.on_isr_answer(self.proposal, ErrorCode[error], self.now_ms)
        return f"{after.name.lower()}; {self._shown()}"

    def do_acks_all(self, required_offset: str) -> str:
        outcome = self.replica.replicated(int(required_offset))
        return "waits" if outcome is None else outcome.name

    # The follower's side
    # ----------------------------------------------------------------------------------------------

    def do_log(self, end_offset: str, high_watermark: str, *epochs: str) -> str:
        """A log found on disk: epochs as "3@10"."""
        self.replica = self._new(
            int(end_offset), int(high_watermark), [each.split("@") for each in epochs]
        )
        return self._shown()

    def do_here_from(self, local_start_offset: str) -> None:
        """Records before an offset are in the remote store only."""
        self.replica.is_tiered = True
        self.replica.set_local_start(int(local_start_offset))

    def do_follow(self, leader_id: str, epoch: str) -> str:
        following = self.replica.follow(int(leader_id), int(epoch))
        if following is None:
            return "unchanged"
        return "\n".join(line for line in (self._stepped(following.begin()), self._wish()) if line)

    def do_gets(self, count: str, epoch: str, high_watermark: str) -> str:
        """Records sent by the leader, and its high watermark."""
        wish = self._following().wish()
        assert isinstance(wish, FetchWish), "it fetches"
        step = self._following().on_fetched(
            wish, error=ErrorCode.NONE, high_watermark=int(high_watermark), log_start_offset=0
        )
        assert isinstance(step, Accept), "the requested records are appended"
        if int(count):
            batch = make_batch(
                0, int(count) - 1, producer_id=-1, epoch=-1, base_offset=self.replica.log_end_offset
            )
            if int(epoch) > (
                self.replica.epochs.latest_epoch
                if self.replica.epochs.latest_epoch is not None
                else -1
            ):
                self.replica.epochs.assign(int(epoch), batch.base_offset)
            self.replica.append_replicated(
                RecordBatch(b"".join(batch.with_base_offset(batch.base_offset, int(epoch))))
            )
        self.replica.on_replicated(step.high_watermark)
        return self._wish()

    def do_diverges(self, end_offset: str, epoch: str) -> str:
        wish = self._following().wish()
        assert isinstance(wish, FetchWish), "it fetches"
        step = self._following().on_fetched(
            wish,
            error=ErrorCode.NONE,
            diverging=Diverging(leader_epoch=int(epoch), end_offset=int(end_offset)),
        )
        return f"{self._stepped(step)}\n{self._wish()}"

    def do_fetch_failed(self, error: str) -> str:
        wish = self._following().wish()
        assert isinstance(wish, FetchWish), "it fetches"
        return (
            f"{self._stepped(self._following().on_fetched(wish, error=ErrorCode[error]))}\n"
            f"{self._wish()}"
        )

    def do_offset(self, offset: str) -> str:
        wish = self._following().wish()
        assert isinstance(wish, OffsetWish), "it requests offsets"
        effects = self._following().on_offset(wish, error=ErrorCode.NONE, offset=int(offset))
        return f"{self._stepped(effects)}\n{self._wish()}"

    def _following(self) -> Following:
        assert self.replica.following is not None, "it follows"
        return self.replica.following

    def _wish(self) -> str:
        wish = self._following().wish()
        match wish:
            case None:
                return "requests nothing"
            case OffsetWish():
                return f"lists the {wish.name.lower()} offset"
        return (
            f"fetches from {wish.fetch_offset}, last epoch {wish.last_fetched_epoch}, in leader "
            f"epoch {wish.leader_epoch}"
        )

    def _stepped(self, step: object) -> str:
        match step:
            case None:
                return ""
            case TruncateTo(offset=offset):
                self._truncate(0, offset)
                return f"truncates its log at {offset}"
            case RestartAt(offset=offset):
                self._truncate(offset, offset)
                self.replica.epochs.truncate_to(0)
                return f"restarts its log at {offset}"
            case BackOff(reason):
                return f"backs off: {reason}"
        return type(step).__name__.lower()

    def _truncate(self, start_offset: int, end_offset: int) -> None:
        self.replica.epochs.truncate_to(end_offset)
        self.replica.on_truncated(start_offset, end_offset)

    # Both
    # ----------------------------------------------------------------------------------------------

    def _new(
        self, end_offset: int = 0, high_watermark: int = 0, epochs: list[list[str]] | None = None
    ) -> PartitionReplica:
        known = LeaderEpochs()
        for epoch, offset in epochs or []:
            known.assign(int(epoch), int(offset))
        return PartitionReplica(
            topic="lines",
            partition=0,
            replica_id=OWN_ID,
            log_start_offset=0,
            log_end_offset=end_offset,
            epochs=known,
            producer_state=ProducerStateManager(ProducerStatePolicy(verifies_transactions=False)),
            rules=AppendRules(min_in_sync_replicas=self.min_in_sync),
            emit=self.notes.append,
            high_watermark=high_watermark,
        )

    def _proposed(self, proposal: IsrProposal | None) -> str:
        self.proposal = proposal or self.proposal
        return (
            f"proposes isr {list(proposal.isr)} at partition epoch {proposal.partition_epoch}"
            if proposal is not None
            else ""
        )

    def _shown(self) -> str:
        replica, leader_state = self.replica, self.replica.leader_state
        log = f"log ends {replica.log_end_offset}, high watermark {replica.high_watermark}"
        return (
            log
            if leader_state is None
            else (
                f"leads epoch {replica.leader_epoch}, isr {list(leader_state.in_sync.agreed)}, "
                f"{log}"
            )
        )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@pytest.mark.parametrize(
    "script",
    [
        "leader_replicates",
        "leader_isr_shrinks",
        "leader_isr_expands",
        "leader_validates_fetches",
        "follower_fetches",
        "follower_truncates",
    ],
)
def test_replication_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ScriptDriver().answer)
