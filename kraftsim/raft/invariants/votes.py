"""Who may lead an epoch of the metadata quorum: votes, and the majority that elects.

A voter votes once in an epoch, has its vote on disk before it sends it, and asks before it stands
for election (since 4.0). A candidate leads only with the votes of a majority. So no epoch has two
leaders, which is what everything else in the quorum relies on.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ControllerElected
from kraftsim.raft.events import QuorumStateStored, QuorumTimersSet, RaftRoleChanged, VoteSent


class FirstVote:
    """A voter votes for at most one candidate per epoch, across restarts.

    A vote counts once it leaves the voter: in its response to a candidate, or when the voter is
    about to request votes itself. If the vote is not on disk by then, a restart loses it, the voter
    may vote again, and two candidates may win the same epoch.

    Tracks each voter's first vote in each epoch, across its incarnations.

    Source: KIP-595, org.apache.kafka.raft.FileQuorumStateStore.
    """

    def __init__(self) -> None:
        self._findings = Findings("one-vote-per-epoch")
        self._votes: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a vote that left its voter."""
        assert isinstance(event, VoteSent)
        self._findings.examined += 1
        candidate, witness = self._votes.setdefault(
            (envelope.node, event.leader_epoch), (event.candidate_id, envelope.event_id)
        )
        if candidate == event.candidate_id:
            return None
        message = (
            f"{envelope.node} voted for {candidate} and for {event.candidate_id} in epoch "
            f"{event.leader_epoch}"
        )
        return self._findings.violation(
            f"{envelope.node}/{event.leader_epoch}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


ONE_VOTE_PER_EPOCH = Invariant(
    name="one-vote-per-epoch",
    within_metadata_log=True,
    rule="A voter votes for at most one candidate per epoch, across restarts.",
    source="KIP-595",
    watches=(VoteSent,),
    check=FirstVote,
    examined="SELECT run, count(*) FROM vote_sent GROUP BY run",
    violations="""
        WITH first_told AS (
            SELECT run, node, leader_epoch, min(position) AS position FROM vote_sent GROUP BY run,
                node, leader_epoch
        ), first_vote AS (
            SELECT v.run, v.node, v.leader_epoch, v.candidate_id, v.position
            FROM first_told AS f JOIN vote_sent AS v ON v.run = f.run AND v.position = f.position
        ), other_vote AS (
            SELECT v.run, v.node, v.leader_epoch, min(v.position) AS position
            FROM vote_sent AS v JOIN first_vote AS f
                ON v.run = f.run AND v.node = f.node AND v.leader_epoch = f.leader_epoch
                    AND v.candidate_id <> f.candidate_id
            GROUP BY v.run, v.node, v.leader_epoch
        )
        SELECT
            f.run,
            concat(f.node, '/', f.leader_epoch) AS key,
            concat(f.node, ' voted for ', f.candidate_id, ' and for ', v.candidate_id, ' in epoch ',
                f.leader_epoch) AS message,
            f.position AS first_witness,
            v.position AS second_witness
        FROM other_vote AS o
        JOIN first_vote AS f ON f.run = o.run AND f.node = o.node
            AND f.leader_epoch = o.leader_epoch
        JOIN vote_sent AS v ON v.run = o.run AND v.position = o.position
    """,
)


class StoredVotes:
    """A vote is on the voter's disk before it is sent, including a candidate's vote for itself.

    This implies one vote per epoch. But that invariant is violated only if a restart and a second
    candidate coincide, while this one reports every vote that was sent too early.

    Tracks the votes that each voter has stored; a later quorum state of the same epoch does not
    revoke a vote.

    Source: KIP-595, org.apache.kafka.raft.FileQuorumStateStore.
    """

    def __init__(self) -> None:
        self._findings = Findings("vote-stored-before-sent")
        self._stored: dict[tuple[str, int, int], None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a stored quorum state, or a vote that was sent."""
        assert isinstance(event, QuorumStateStored | VoteSent)
        if isinstance(event, QuorumStateStored):
            self._stored[envelope.node, event.leader_epoch, event.voted_id] = None
            return None
        self._findings.examined += 1
        if (envelope.node, event.leader_epoch, event.candidate_id) in self._stored:
            return None
        message = (
            f"{envelope.node} reported its vote for {event.candidate_id} in epoch "
            f"{event.leader_epoch}, and had not stored it"
        )
        return self._findings.violation(
            f"{envelope.node}/{event.leader_epoch}/{event.candidate_id}", message, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


VOTE_STORED_BEFORE_SENT = Invariant(
    name="vote-stored-before-sent",
    within_metadata_log=True,
    rule="A vote is on the voter's disk before it is sent.",
    source="KIP-595",
    watches=(QuorumStateStored, VoteSent),
    check=StoredVotes,
    examined="SELECT run, count(*) FROM vote_sent GROUP BY run",
    violations="""
        WITH stored AS (
            SELECT run, node, leader_epoch, voted_id, min(position) AS position
                FROM quorum_state_stored GROUP BY run, node, leader_epoch, voted_id
        ), reported AS (
            SELECT v.run, v.node, v.leader_epoch, v.candidate_id, min(v.position) AS position
            FROM vote_sent AS v LEFT JOIN stored AS s
                ON s.run = v.run AND s.node = v.node AND s.leader_epoch = v.leader_epoch
                    AND s.voted_id = v.candidate_id AND s.position < v.position
            WHERE s.position IS NULL
            GROUP BY v.run, v.node, v.leader_epoch, v.candidate_id
        )
        SELECT
            run,
            concat(node, '/', leader_epoch, '/', candidate_id) AS key,
            concat(node, ' reported its vote for ', candidate_id, ' in epoch ', leader_epoch,
                ', and had not stored it') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM reported
    """,
)


ASKING, CANDIDATE = "Prospective", "Candidate"


class AskedBefore:
    """From 4.0 on a voter sends pre-vote requests before each election it starts; earlier releases
    never do.

    A voter that starts an election without a pre-vote raises the epoch of every voter that it
    reaches, and deposes a leader that a majority follows. A voter that finds other voters without
    pre-vote support (before 4.0) has sent its requests, and proceeds without their responses.

    Tracks the roles of each process that has reported whether it uses pre-vote. Its first role is
    not checked: its previous incarnation may have been a candidate.

    Source: KIP-996, KAFKA-16164.
    """

    def __init__(self) -> None:
        self._findings = Findings("pre-vote-before-election")
        self._asks: dict[tuple[str, int], bool] = {}
        self._roles: dict[tuple[str, int], tuple[RaftRoleChanged, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process whether a process uses pre-vote, or its next role."""
        process = (envelope.node, envelope.incarnation)
        if isinstance(event, QuorumTimersSet):
            self._asks[process] = event.has_pre_vote
            return None
        assert isinstance(event, RaftRoleChanged)
        before = self._roles.get(process)
        self._roles[process] = (event, envelope.event_id)
        asks = self._asks.get(process)
        if before is None or asks is None:
            return None
        former, witness = before
        is_asking = event.role == ASKING and former.role != ASKING
        is_candidate = event.role == CANDIDATE and event.leader_epoch > former.leader_epoch
        if not is_asking and not is_candidate:
            return None
        self._findings.examined += 1
        if is_asking and not asks:
            message = (
                f"{envelope.node} asked before an election in epoch {event.leader_epoch}, which "
                "its release does not know"
            )
        elif is_candidate and asks and former.role != ASKING:
            message = f"{envelope.node} opened epoch {event.leader_epoch} and had not asked"
        else:
            return None
        return self._findings.violation(envelope.event_id, message, witness, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_STEPS = f"""
        WITH rule AS (
            SELECT run, node, incarnation, min(position) AS position,
                max(CAST(has_pre_vote AS INT)) AS asks
            FROM quorum_timers_set GROUP BY run, node, incarnation
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, role, leader_epoch,
                lag(role) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_role,
                lag(leader_epoch) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_epoch,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_position
            FROM raft_role_changed
        ), step AS (
            SELECT o.run, o.node, o.incarnation, o.n, o.position, o.role, o.leader_epoch,
                o.former_role, o.former_position, r.asks
            FROM ordered AS o JOIN rule AS r ON r.run = o.run AND r.node = o.node
                AND r.incarnation = o.incarnation AND r.position < o.position
            WHERE (o.role = '{ASKING}' AND o.former_role <> '{ASKING}') OR (o.role = '{CANDIDATE}'
                AND o.leader_epoch > o.former_epoch)
        )
"""
PRE_VOTE_BEFORE_ELECTION = Invariant(
    name="pre-vote-before-election",
    rule="From 4.0 on a voter sends pre-vote requests before each election it starts; earlier "
    "releases never do.",
    source="KIP-996",
    watches=(QuorumTimersSet, RaftRoleChanged),
    check=AskedBefore,
    examined=f"{_STEPS} SELECT run, count(*) FROM step GROUP BY run",
    violations=f"""
        {_STEPS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            CASE WHEN role = '{ASKING}'
                THEN concat(node, ' asked before an election in epoch ', leader_epoch,
                    ', which its release does not know')
                ELSE concat(node, ' opened epoch ', leader_epoch,
                    ' and had not asked') END AS message,
            former_position AS first_witness,
            position AS second_witness
        FROM step WHERE (role = '{ASKING}' AND asks = 0) OR (role = '{CANDIDATE}' AND asks = 1
            AND former_role <> '{ASKING}')
    """,
)


class CountedVotes:
    """The leader of an epoch received votes from a majority of the voters in that epoch, its own
    included.

    This implies one leader per epoch. But that invariant is violated only if a second leader is
    elected, while this one reports every leader with too few votes.

    Counts the votes sent for each candidate.

    A candidate's own vote counts whether or not it was sent; a sole voter sends none.

    Source: KIP-595, Election Safety of Raft (Ongaro and Ousterhout 2014, section 5.2).
    """

    def __init__(self) -> None:
        self._findings = Findings("leader-elected-by-majority")
        self._voters: dict[tuple[int, int], dict[str, None]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a vote or an election."""
        if isinstance(event, VoteSent):
            self._voters.setdefault((event.leader_epoch, event.candidate_id), {})[envelope.node] = (
                None
            )
            return None
        assert isinstance(event, ControllerElected)
        if event.voter_count < 1:
            return None
        self._findings.examined += 1
        others = self._voters.get((event.leader_epoch, event.leader_id), {}).keys() - {
            envelope.node
        }
        count = len(others) + 1
        if 2 * count > event.voter_count:
            return None
        message = (
            f"{envelope.node} leads epoch {event.leader_epoch} with {count} of "
            f"{event.voter_count} votes"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


LEADER_ELECTED_BY_MAJORITY = Invariant(
    name="leader-elected-by-majority",
    within_metadata_log=True,
    rule="The leader of an epoch received votes from a majority of the voters in that epoch.",
    source="KIP-595",
    watches=(VoteSent, ControllerElected),
    check=CountedVotes,
    examined="SELECT run, count(*) FROM controller_elected WHERE voter_count > 0 GROUP BY run",
    violations="""
        WITH counted AS (
            SELECT
                e.run, e.node, e.incarnation, e.n, e.position, e.leader_epoch, e.voter_count,
                    1 + count(DISTINCT v.node) AS vote_count
            FROM controller_elected AS e LEFT JOIN vote_sent AS v
                ON v.run = e.run AND v.leader_epoch = e.leader_epoch
                    AND v.candidate_id = e.leader_id AND v.node <> e.node
                    AND v.position < e.position
            WHERE e.voter_count > 0
            GROUP BY e.run, e.node, e.incarnation, e.n, e.position, e.leader_epoch, e.voter_count
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' leads epoch ', leader_epoch, ' with ', vote_count, ' of ', voter_count,
                ' votes') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM counted WHERE 2 * vote_count <= voter_count
    """,
)


class FirstWinner:
    """Each epoch of the metadata quorum has at most one leader.

    Two leaders of one epoch would write different records at the same offsets, and followers could
    not tell which to replicate.

    Tracks the leader of each epoch.

    Source: KIP-595 (election safety).
    """

    def __init__(self) -> None:
        self._findings = Findings("one-leader-per-epoch")
        self._winners: dict[int, tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an election."""
        assert isinstance(event, ControllerElected)
        self._findings.examined += 1
        winner, witness = self._winners.setdefault(
            event.leader_epoch, (envelope.node, envelope.event_id)
        )
        if winner == envelope.node:
            return None
        message = f"epoch {event.leader_epoch} was won by {winner} and by {envelope.node}"
        return self._findings.violation(
            str(event.leader_epoch), message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


ONE_LEADER_PER_EPOCH = Invariant(
    name="one-leader-per-epoch",
    within_metadata_log=True,
    rule="Each epoch of the metadata quorum has at most one leader.",
    source="KIP-595",
    watches=(ControllerElected,),
    check=FirstWinner,
    examined="SELECT run, count(*) FROM controller_elected GROUP BY run",
    violations="""
        WITH first_election AS (
            SELECT run, leader_epoch, min(position) AS position FROM controller_elected
                GROUP BY run, leader_epoch
        ), winner AS (
            SELECT e.run, e.leader_epoch, e.node, e.position
            FROM first_election AS f JOIN controller_elected AS e ON e.run = f.run
                AND e.position = f.position
        ), rival AS (
            SELECT e.run, e.leader_epoch, min(e.position) AS position
            FROM controller_elected AS e JOIN winner AS w ON e.run = w.run
                AND e.leader_epoch = w.leader_epoch AND e.node <> w.node
            GROUP BY e.run, e.leader_epoch
        )
        SELECT
            w.run,
            concat('', w.leader_epoch) AS key,
            concat('epoch ', w.leader_epoch, ' was won by ', w.node, ' and by ', e.node) AS message,
            w.position AS first_witness,
            e.position AS second_witness
        FROM rival AS r
        JOIN winner AS w ON w.run = r.run AND w.leader_epoch = r.leader_epoch
        JOIN controller_elected AS e ON e.run = r.run AND e.position = r.position
    """,
)


INVARIANTS = (
    ONE_VOTE_PER_EPOCH,
    VOTE_STORED_BEFORE_SENT,
    PRE_VOTE_BEFORE_ELECTION,
    LEADER_ELECTED_BY_MAJORITY,
    ONE_LEADER_PER_EPOCH,
)
