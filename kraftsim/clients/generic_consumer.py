"""The alternative consumer of KIP-447: the application reads the generation, waits for rebalances
and fetches offsets itself.

The rejected alternative was to support any Consumer, by `generationId()`, `fetchOffsets(all)` and
`blockOnRebalance(timeout)`; what shipped is `groupMetadata()`, and a consumer that waits
internally. Here the application receives two errors that the shipped consumer handles, and must
retry.
Source: KIP-447 (its open alternative), the document of its design.
"""

import asyncio

from kraftsim.clients.cluster_connections import find_coordinator
from kraftsim.clients.group_consumer import GroupConsumerClient, MembershipFailed
from kraftsim.clients.group_offsets import fetch_offsets
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_group_member import ClientMemberState
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from protocol.errors import ErrorCode

MS_PER_SECOND = 1000


class OffsetsPending(RuntimeError):
    """These partitions have pending offset commits of an open transaction."""

    def __init__(self, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(
            "offsets are pending for "
            f"{', '.join(f'{topic}-{partition}' for topic, partition in partitions)}"
        )
        self.partitions = partitions


class CoordinatorUnavailable(RuntimeError):
    """The group coordinator is not available."""


class GenericConsumer(GroupConsumerClient):
    """A member whose application waits explicitly: `block_on_rebalance`, `fetch_offsets`, then
    `poll`, repeatedly.
    """

    def generation_id(self) -> int:
        """Return the generation for offset commits."""
        return self.group.generation_id

    async def block_on_rebalance(self, timeout_ms: int) -> bool:
        """Revoke and add partitions as assigned; return whether the group is stable.

        Raises MembershipFailed.
        """
        try:
            async with asyncio.timeout(timeout_ms / MS_PER_SECOND):
                while True:
                    self._require_membership()
                    await self._settle_membership()
                    if self._rules.state is ClientMemberState.STABLE and not self._added:
                        return True
                    await self._loop.change()
        except TimeoutError:
            return False

    async def fetch_offsets(self) -> dict[TopicPartition, int]:
        """Fetch the committed offsets of all assigned partitions once; -1: none.

        Raises OffsetsPending, CoordinatorUnavailable.
        """
        asked = self._rules.assigned
        if not asked:
            return {}
        try:
            found = await find_coordinator(
                self.connections, CoordinatorKind.GROUP, self._settings.group_id
            )
            if isinstance(found, ErrorCode):
                raise CoordinatorUnavailable(found.name)
            connection = await self.connections.to_broker(found)
            answers = await fetch_offsets(
                connection, self._settings.group_id, asked, require_stable=True
            )
            await self._fetching.refresh(self._settings.topics)
        except OSError as trouble:
            raise CoordinatorUnavailable(str(trouble)) from trouble
        pending = tuple(
            where
            for where, (error, _) in answers.items()
            if error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        if pending:
            raise OffsetsPending(pending)
        other = next((error for error, _ in answers.values() if error is not ErrorCode.NONE), None)
        if other is not None:
            raise CoordinatorUnavailable(other.name)
        offsets = {where: offset for where, (_, offset) in answers.items()}
        self._positions = {where: max(offset, 0) for where, offset in offsets.items()}
        self._without_position = ()
        return offsets

    async def poll(self) -> list[ReadRecord]:
        """Return the next committed records; none while the group rebalances or no offsets were
        fetched.

        Raises MembershipFailed.
        """
        self._require_membership()
        if self._released is not None or self._lost or self._added or self._without_position:
            return []
        try:
            return await self._fetch()
        except OSError:
            return []

    def _require_membership(self) -> None:
        if self._fatal is not None:
            raise MembershipFailed(self._fatal)
        if self._loop.failure is not None:
            raise self._loop.failure
