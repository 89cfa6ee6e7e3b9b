"""Dynamic changes of the voter set: add, remove or update a voter; one change at a time.

A change is allowed once the leader has committed a record of its own epoch and the former change is
committed: then any majority of the old voters overlaps any majority of the new ones.
Source: KIP-853, org.apache.kafka.raft.internals.{AddVoterHandler, RemoveVoterHandler,
UpdateVoterHandler}.
"""

from dataclasses import dataclass

from kraftsim.core.raft import leading, messages
from kraftsim.core.raft.effects import Reply
from kraftsim.core.raft.leadership import Leadership
from kraftsim.core.raft.quorum import Quorum
from kraftsim.core.raft.roles import NEVER, Leader
from kraftsim.core.raft.settings import NEW_VOTER_FETCH_MS
from kraftsim.core.raft.voter_set import DYNAMIC_VOTERS, Address, ReplicaKey, VoterNode
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

KRAFT_VERSION_FEATURE = "kraft.version"
Refused = tuple[ErrorCode, str]


@dataclass(slots=True, kw_only=True)
class _Addition:
    """A voter being added: ApiVersions sent, then appended, then committed."""

    voter: VoterNode
    ticket: object
    until_ms: int
    asked: int | None
    acks_at_append: bool
    offset: int | None = None


@dataclass(slots=True, kw_only=True)
class _Removal:
    """A voter being removed: appended, then committed."""

    ticket: object
    until_ms: int
    offset: int


class VoterChanges:
    """The pending change of a leader."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._addition: _Addition | None = None
        self._removal: _Removal | None = None

    def is_waiting_for(self, number: int) -> bool:
        """Return whether a request is the ApiVersions request to the new voter."""
        return self._addition is not None and self._addition.asked == number

    def on_add(self, request: AddRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Start adding a voter, or fail."""
        voter = VoterNode(
            key=ReplicaKey(request.voter_id, request.voter_directory_id),
            endpoints={
                listener.name: Address(listener.host, listener.port)
                for listener in request.listeners
            },
        )
        refused = self._refuse_any(request.cluster_id, voter.key)
        if refused is None and self._quorum.listener not in voter.endpoints:
            refused = (
                ErrorCode.INVALID_REQUEST,
                (
                    f"the voter has no address for listener {self._quorum.listener}, only for "
                    f"{list(voter.endpoints)}"
                ),
            )
        refused = refused or self._refuse_now()
        if refused is None and self._quorum.voter_set.node(voter.key.id) is not None:
            refused = (
                ErrorCode.DUPLICATE_VOTER,
                f"node {voter.key.id} is one of the voters {_voter_ids(self._quorum)}",
            )
        if refused is None and not self._quorum.peers.is_ready(voter.key.id, now_ms):
            refused = ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.id} cannot be asked right now"
        if refused is not None:
            self._quorum.effects.append(
                Reply(ticket, AddRaftVoterResponse(error_code=refused[0], error_message=refused[1]))
            )
            return
        send = self._quorum.peers.send(
            voter.key.id, voter.endpoints[self._quorum.listener], ApiVersionsRequest()
        )
        self._addition = _Addition(
            voter=voter,
            ticket=ticket,
            until_ms=now_ms + request.timeout_ms,
            asked=send.number,
            acks_at_append=not request.ack_when_committed,
        )
        self._quorum.effects.append(send)

    def on_voter_answered(self, number: int, response: Message, now_ms: int) -> None:
        """The new voter's ApiVersions response: append the voter set if it supports the
        kraft.version.
        """
        addition = self._addition
        assert addition is not None and addition.asked == number, "ApiVersions was sent"
        addition.asked = None
        assert isinstance(response, ApiVersionsResponse), "the response is for ApiVersions"
        refused = self._refuse_newcomer(addition, response, now_ms)
        if refused is not None:
            self._end_addition(*refused)
            return
        versions = _kraft_versions(response)
        assert versions is not None, "checked above"
        addition.voter = VoterNode(
            key=addition.voter.key, endpoints=addition.voter.endpoints, kraft_versions=versions
        )
        addition.offset = leading.append_voters(
            self._quorum, self._quorum.voter_set.with_voter(addition.voter)
        )
        if addition.acks_at_append:
            self._end_addition(ErrorCode.NONE, None)

    def on_voter_failed(self, number: int, now_ms: int) -> None:
        """The new voter did not respond."""
        addition = self._addition
        assert addition is not None and addition.asked == number and now_ms >= 0, (
            "ApiVersions was sent"
        )
        addition.asked = None
        self._end_addition(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {addition.voter.key.id} did not say what it supports",
        )

    def on_remove(self, request: RemoveRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Start removing a voter, or fail."""
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        refused = self._refuse_any(request.cluster_id, key) or self._refuse_now()
        voters = self._quorum.voter_set
        if refused is None and (not voters.includes(key) or len(voters) == 1):
            refused = (
                ErrorCode.VOTER_NOT_FOUND,
                (
                    f"node {key.id} with this directory cannot leave the voters "
                    f"{_voter_ids(self._quorum)}"
                ),
            )
        if refused is not None:
            self._quorum.effects.append(
                Reply(
                    ticket, RemoveRaftVoterResponse(error_code=refused[0], error_message=refused[1])
                )
            )
            return
        offset = leading.append_voters(self._quorum, voters.without_voter(key))
        self._removal = _Removal(
            ticket=ticket, until_ms=now_ms + self._quorum.settings.request_timeout_ms, offset=offset
        )

    def on_update(self, request: UpdateRaftVoterRequest, ticket: object, now_ms: int) -> None:
        """Update a voter, or fail; answered as soon as it is appended."""
        quorum = self._quorum
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        error = self._refuse_update(request, key)
        if error is ErrorCode.NONE and quorum.voters.kraft_version >= DYNAMIC_VOTERS:
            feature = request.k_raft_version_feature
            voter = VoterNode(
                key=key,
                endpoints={
                    listener.name: Address(listener.host, listener.port)
                    for listener in request.listeners
                },
                kraft_versions=(feature.min_supported_version, feature.max_supported_version),
            )
            if quorum.voter_set.node(key.id) != voter:
                leading.append_voters(quorum, quorum.voter_set.with_updated(voter))
        quorum.effects.append(Reply(ticket, messages.update_voter_response(quorum, error)))

    def on_leadership_lost(self) -> None:
        """Fail the pending request: this node is not leader any more; the change may or may not be
        committed.
        """
        self._end_addition(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum any more"
        )
        self._end_removal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum any more"
        )

    def poll(self, now_ms: int) -> int:
        """Answer pending requests whose change is committed, or that have timed out; return the
        next poll time.
        """
        if self._addition is None and self._removal is None:
            return NEVER
        committed = self._quorum.log.high_watermark or 0
        if (
            self._addition is not None
            and self._addition.offset is not None
            and self._addition.offset < committed
        ):
            self._end_addition(ErrorCode.NONE, None)
        if self._removal is not None and self._removal.offset < committed:
            self._end_removal(ErrorCode.NONE, None)
        if not isinstance(self._quorum.role, Leader):
            self.on_leadership_lost()
        if self._addition is not None and now_ms >= self._addition.until_ms:
            self._end_addition(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")
        if self._removal is not None and now_ms >= self._removal.until_ms:
            self._end_removal(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")
        pending = [
            change.until_ms for change in (self._addition, self._removal) if change is not None
        ]
        return min(pending, default=NEVER)

    def _end_addition(self, error: ErrorCode, message: str | None) -> None:
        addition, self._addition = self._addition, None
        if addition is not None:
            self._quorum.effects.append(
                Reply(
                    addition.ticket, AddRaftVoterResponse(error_code=error, error_message=message)
                )
            )

    def _end_removal(self, error: ErrorCode, message: str | None) -> None:
        removal, self._removal = self._removal, None
        if removal is not None:
            self._quorum.effects.append(
                Reply(
                    removal.ticket, RemoveRaftVoterResponse(error_code=error, error_message=message)
                )
            )

    def _refuse_any(self, cluster_id: str | None, key: ReplicaKey) -> Refused | None:
        """Return the error of a request that is invalid for any leader."""
        if cluster_id is not None and cluster_id != self._quorum.cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._quorum.cluster_id}, not {cluster_id}",
            )
        if not isinstance(self._quorum.role, Leader):
            return (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "this node does not lead the quorum",
            )
        if key.id < 0 or key.directory_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST, "a voter has an id and a directory id"
        return None

    def _refuse_now(self) -> Refused | None:
        """Return the error of a request that this leader cannot handle yet."""
        voters, committed = self._quorum.voters, self._quorum.log.high_watermark
        leadership = self._leadership()
        if self._addition is not None or self._removal is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way"
        if committed is None or committed <= leadership.epoch_start_offset:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has not committed anything of its epoch yet",
            )
        if voters.kraft_version < DYNAMIC_VOTERS:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                f"the voters stand in the configuration: kraft.version is {voters.kraft_version}",
            )
        if voters.latest_offset is None or voters.latest_offset >= committed:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"the last change of the voters, at {voters.latest_offset}, is not committed",
            )
        return None

    def _refuse_newcomer(
        self, addition: _Addition, response: ApiVersionsResponse, now_ms: int
    ) -> Refused | None:
        if response.error_code != ErrorCode.NONE:
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {addition.voter.key.id} does not say what it supports",
            )
        supported = _kraft_versions(response)
        in_force = self._quorum.voters.kraft_version
        if supported is None or not supported[0] <= in_force <= supported[1]:
            return (
                ErrorCode.INVALID_REQUEST,
                f"node {addition.voter.key.id} does not support kraft.version {in_force}",
            )
        progress = self._leadership().progress_of(addition.voter.key)
        is_recent = (
            progress is not None
            and progress.last_fetch_ms is not None
            and now_ms - progress.last_fetch_ms < NEW_VOTER_FETCH_MS
        )
        if progress is None or not is_recent or progress.last_caught_up_wall_ms < 0:
            return ErrorCode.REQUEST_TIMED_OUT, f"node {addition.voter.key.id} has not caught up"
        return None

    def _refuse_update(self, request: UpdateRaftVoterRequest, key: ReplicaKey) -> ErrorCode:
        quorum = self._quorum
        if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.current_leader_epoch != quorum.epoch:
            return (
                ErrorCode.FENCED_LEADER_EPOCH
                if request.current_leader_epoch < quorum.epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        feature = request.k_raft_version_feature
        is_covered = (
            feature.min_supported_version
            <= quorum.voters.kraft_version
            <= feature.max_supported_version
        )
        if (
            key.id < 0
            or all(listener.name != quorum.listener for listener in request.listeners)
            or not is_covered
        ):
            return ErrorCode.INVALID_REQUEST
        refused = None if quorum.voters.kraft_version < DYNAMIC_VOTERS else self._refuse_now()
        if refused is not None:
            return refused[0]
        return ErrorCode.NONE if quorum.voter_set.includes(key) else ErrorCode.VOTER_NOT_FOUND

    def _leadership(self) -> Leadership:
        assert isinstance(self._quorum.role, Leader), "only called on a leader"
        return self._quorum.role.leadership


def _kraft_versions(response: ApiVersionsResponse) -> tuple[int, int] | None:
    """Return the kraft.version range of a node; None if it has none."""
    found = next(
        (
            feature
            for feature in response.supported_features
            if feature.name == KRAFT_VERSION_FEATURE
        ),
        None,
    )
    return None if found is None else (found.min_version, found.max_version)


def _voter_ids(quorum: Quorum) -> str:
    return ", ".join(map(str, quorum.voter_set.ids))
