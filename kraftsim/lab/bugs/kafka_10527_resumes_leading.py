"""A controller that was the leader before a crash resumes leadership of the same epoch after the
restart.

What it had written and not flushed is lost, followers may have fetched it, and now it writes other
records at the same offsets of the same epoch. The epochs do not reveal the difference, and the logs
diverge for ever.

Source: KAFKA-10527, fixed by starting as a resigned leader, which needs a new epoch
(org.apache.kafka.raft.QuorumState.initialize).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Candidate, Role


class ResumesLeading(Quorum):
    """Assumes that the former majority still holds."""

    def _role_after_leading(self, epoch: int, now_ms: int) -> Role:
        candidate = Candidate(epoch=epoch, election_at_ms=self.election_timeout(now_ms))
        for voter_id in self.voter_set.ids:
            candidate.canvass.grant(voter_id)
        return candidate  # right: Resigned


BUG = Bug(
    name="KAFKA-10527",
    title="a restarted leader resumes its epoch without the records that it lost",
    fixed_in=("2.7.0",),
    swap=lambda parts: parts.replacing(quorum=ResumesLeading),
    scenario="quorum_under_faults",
    caught_by=(
        "quorum-state-restored",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "no-truncation-below-high-watermark",
    ),
)
