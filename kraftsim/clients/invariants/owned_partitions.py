"""In one member epoch of a consumer group a partition has one owner, as its members see it.

A fenced member may still believe that it owns a partition: then its epoch is an earlier one, and
the coordinator rejects its commits.
An empty group begins again with epoch 1 if it was deleted, or if a member of a consumer group
joins it while it is a classic group. That is another group, and the epochs of the two are not
compared: a member has joined it if a later epoch was seen after the first owner took the partition,
and before the second one began to join. Whether the epochs of one group may go back is what
member-epochs-increase checks.
Source: KIP-848; org.apache.kafka.coordinator.group.GroupMetadataManager
(maybeDeleteEmptyClassicGroup).
"""

from typing import Final

from kraftsim.clients.events import ClientStarted
from kraftsim.clients.events_transactions import MembershipLost, MemberStable, PartitionTaken
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME: Final = "partitions-owned-once-per-epoch"
NOT_SEEN: Final = -1
"""The place of the start of a membership that the history does not have."""


class OwnedOnce:
    """Compares each owner of a partition with the earlier ones in that epoch; a static member keeps
    its partitions under another member id.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._place = 0
        """The number of events so far."""
        self._began: dict[str, int] = {}
        """By client: the place of the event since which it may join."""
        self._epochs: dict[str, list[tuple[int, int]]] = {}
        """By group: places, and the epochs that members saw there."""
        self._owners: dict[
            tuple[str, str, int, int], dict[tuple[str, str, int], tuple[int, str]]
        ] = {}
        """The first event of each owner and membership: its place, and its id."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a partition that a member takes, or an epoch that it sees."""
        self._place += 1
        match event:
            case ClientStarted(client_id=client_id) | MembershipLost(client_id=client_id):
                self._began[client_id] = self._place
            case MemberStable(group_id=group_id, generation_id=epoch):
                self._epochs.setdefault(group_id, []).append((self._place, epoch))
            case PartitionTaken():
                self._findings.examined += 1
                return self._take(envelope, event)
            case _:
                pass
        return None

    def _take(self, envelope: Envelope, taken: PartitionTaken) -> Violation | None:
        key = (taken.group_id, taken.topic, taken.partition, taken.member_epoch)
        owners = self._owners.setdefault(key, {})
        began = self._began.get(taken.client_id, NOT_SEEN)
        membership = (taken.owner, taken.client_id, began)
        if membership in owners:
            return None
        owners[membership] = (self._place, envelope.event_id)
        for (owner, _, _), (place, event_id) in owners.items():
            if owner != taken.owner and not self._is_of_earlier_group(taken, place, began):
                return self._findings.violation(
                    "/".join(map(str, (*key, taken.owner))),
                    f"{taken.group_id}: {taken.topic}-{taken.partition} is owned by {owner} and "
                    f"by {taken.owner} in epoch {taken.member_epoch}",
                    event_id,
                    envelope.event_id,
                )
        return None

    def _is_of_earlier_group(self, taken: PartitionTaken, place: int, began: int) -> bool:
        """Return whether a later epoch was seen between the first owner and the second one."""
        return any(
            place < seen_at < began and epoch > taken.member_epoch
            for seen_at, epoch in self._epochs.get(taken.group_id, ())
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    decides_without_nodes=True,
    rule="In one member epoch of a consumer group a partition has one owner.",
    source="KIP-848",
    watches=(PartitionTaken, MemberStable, MembershipLost, ClientStarted),
    check=OwnedOnce,
    examined="SELECT run, count(*) FROM partition_taken GROUP BY run",
    violations=f"""
        WITH starts AS (
            SELECT run, client_id, position FROM client_started
            UNION ALL SELECT run, client_id, position FROM membership_lost
        ), placed AS (
            SELECT t.run, t.group_id, t.topic, t.partition, t.member_epoch, t.owner, t.client_id,
                t.position, coalesce(max(b.position), {NOT_SEEN}) AS began
            FROM partition_taken AS t LEFT JOIN starts AS b ON b.run = t.run
                AND b.client_id = t.client_id AND b.position < t.position
            GROUP BY t.run, t.group_id, t.topic, t.partition, t.member_epoch, t.owner, t.client_id,
                t.position
        ), taken AS (
            SELECT run, group_id, topic, partition, member_epoch, owner, began,
                min(position) AS position
            FROM placed
            GROUP BY run, group_id, topic, partition, member_epoch, owner, client_id, began
        ), pairs AS (
            SELECT l.run, l.group_id, l.topic, l.partition, l.member_epoch, l.owner, l.position,
                f.owner AS first_owner, f.position AS first_position,
                row_number() OVER (PARTITION BY l.run, l.group_id, l.topic, l.partition,
                    l.member_epoch, l.owner ORDER BY l.position, f.position) AS place
            FROM taken AS l JOIN taken AS f ON f.run = l.run AND f.group_id = l.group_id
                AND f.topic = l.topic AND f.partition = l.partition
                AND f.member_epoch = l.member_epoch AND f.position < l.position
                AND f.owner <> l.owner
            LEFT JOIN member_stable AS s ON s.run = l.run AND s.group_id = l.group_id
                AND s.generation_id > l.member_epoch AND s.position > f.position
                AND s.position < l.began
            WHERE s.run IS NULL
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition, '/', member_epoch, '/', owner) AS key,
            concat(group_id, ': ', topic, '-', partition, ' is owned by ', first_owner,
                ' and by ', owner, ' in epoch ', member_epoch) AS message,
            first_position AS first_witness,
            position AS second_witness
        FROM pairs WHERE place = 1
    """,
)
