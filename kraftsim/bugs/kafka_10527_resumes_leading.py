"""A controller that led when it went down leads the same epoch again when it comes back.

What it had written and not flushed is lost, followers may have read it, and now it writes something else at the same offsets in the same epoch:
nobody can tell the two apart any more, and the logs never agree again.

Source: KAFKA-10527, fixed by beginning as a resigned leader, which needs a new epoch (org.apache.kafka.raft.QuorumState.initialize).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.raft.quorum import Quorum
from kraftsim.core.raft.roles import Candidate, Role


class ResumesLeading(Quorum):
    """Takes the majority that it once had for granted."""

    def _role_after_leading(self, epoch: int, now_ms: int) -> Role:
        candidate = Candidate(epoch=epoch, election_at_ms=self.election_timeout(now_ms))
        for voter_id in self.voter_set.ids:
            candidate.canvass.grant(voter_id)
        return candidate  # right: Resigned


BUG = Bug(
    name="KAFKA-10527",
    title="a leader that restarts leads its epoch again, without what it lost",
    fixed_in=("2.7.0",),
    swap=lambda parts: parts.replacing(quorum=ResumesLeading),
    story="quorum_under_faults",
    caught_by=("quorum-state-taken-up", "metadata-log-matching", "high-watermark-monotonic", "no-truncation-below-high-watermark"),
)
