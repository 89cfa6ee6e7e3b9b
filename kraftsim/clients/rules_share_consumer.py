"""A share consumer's sessions, one with each leader, and the records that it has acquired.

A session's requests are numbered by its epoch; one is in flight at a time. ShareFetch asks for more
records and carries acknowledgements; ShareAcknowledge only acknowledges, when the application
waits for it, renews, or leaves. What a session has acquired ends with it: after an error of the
whole request, or without a response, its records are others' to take, and the application may not
acknowledge them any more.

In the implicit mode the next poll accepts everything; in the explicit mode the application answers
for every record, and may renew one to get more time.
Source: KIP-932, KIP-1222; org.apache.kafka.clients.consumer.internals.{ShareConsumeRequestManager,
ShareSessionHandler, ShareInFlightBatch}.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple

import msgspec

from kraftsim.clients.rules_producer_steps import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import (
    FINAL_SESSION_EPOCH,
    FIRST_SESSION_EPOCH,
    AcknowledgeType,
)

EPOCH_MAX = 2**31 - 1
"""The epoch after it is 1: 0 and negative ones have meanings of their own."""


class AcknowledgementMode(Enum):
    """share.acknowledgement.mode."""

    IMPLICIT = auto()
    EXPLICIT = auto()


class AcquiredRange(NamedTuple):
    """Acquired offsets, both inclusive, and their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AnsweredRange(NamedTuple):
    """Offsets, both inclusive, with one type of acknowledgement and one delivery count."""

    first_offset: int
    last_offset: int
    kind: AcknowledgeType
    delivery_count: int


class ShareQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session: a ShareFetch, or without `fetches` a ShareAcknowledge."""

    node_id: int
    session_epoch: int
    fetches: bool
    added: tuple[TopicPartition, ...] = ()
    forgotten: tuple[TopicPartition, ...] = ()
    acknowledged: Mapping[TopicPartition, tuple[AnsweredRange, ...]] = {}

    @property
    def renews(self) -> bool:
        """Whether some records are renewed: the request has a flag for that."""
        return any(
            each.kind is AcknowledgeType.RENEW
            for ranges in self.acknowledged.values()
            for each in ranges
        )


class ShareRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a response says about one partition."""

    error_code: ErrorCode = ErrorCode.NONE
    acknowledge_error_code: ErrorCode = ErrorCode.NONE
    acquired: tuple[AcquiredRange, ...] = ()


class AcknowledgementOutcome(NamedTuple):
    """What became of acknowledgements; without an error code there was no response."""

    where: TopicPartition
    answered: AnsweredRange
    error_code: ErrorCode | None


@dataclass(slots=True)
class HeldRecord:
    """A record that this consumer has acquired: from whom, how often it was delivered, and what
    the application said about it, if it did.
    """

    node_id: int
    delivery_count: int
    answer: AcknowledgeType | None = None
    is_in_flight: bool = False


@dataclass(slots=True)
class _Session:
    epoch: int = FIRST_SESSION_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    asked: ShareQuestion | None = None


@dataclass(slots=True)
class ShareConsumption:
    """All sessions of one share consumer, and what it holds."""

    mode: AcknowledgementMode = AcknowledgementMode.IMPLICIT
    _sessions: dict[int, _Session] = field(default_factory=dict)
    _held: dict[TopicPartition, dict[int, HeldRecord]] = field(default_factory=dict)

    @property
    def node_ids(self) -> list[int]:
        """The leaders with which there is a session, in the order in which they were opened."""
        return [node for node, session in self._sessions.items() if session.epoch != 0]

    @property
    def unanswered(self) -> int:
        """The number of held records about which the application has said nothing."""
        return sum(
            record.answer is None for each in self._held.values() for record in each.values()
        )

    @property
    def held_count(self) -> int:
        """The number of held records."""
        return sum(len(each) for each in self._held.values())

    def held(self, where: TopicPartition, offset: int) -> HeldRecord | None:
        """Return a held record, or nothing if it is not held (any more)."""
        return self._held.get(where, {}).get(offset)

    # The application
    # ----------------------------------------------------------------------------------------------

    def answer(self, where: TopicPartition, offset: int, kind: AcknowledgeType) -> bool:
        """Say what shall become of a held record; return whether it is still held.

        The last word before the request counts.
        """
        record = self.held(where, offset)
        if record is None or record.is_in_flight:
            return False
        record.answer = kind
        return True

    def accept_the_rest(self) -> None:
        """Accept every held record about which nothing was said: what a poll does in the implicit
        mode.
        """
        for each in self._held.values():
            for record in each.values():
                if record.answer is None:
                    record.answer = AcknowledgeType.ACCEPT

    # Requests
    # ----------------------------------------------------------------------------------------------

    def question(
        self, node_id: int, partitions: Collection[TopicPartition], *, fetches: bool
    ) -> ShareQuestion | None:
        """Return the next request for a leader of some assigned partitions, and take note of it;
        nothing if one is in flight, or if there is nothing to say.

        A renewal is never part of a ShareFetch: that would return no records.
        """
        session = self._sessions.setdefault(node_id, _Session())
        if session.asked is not None:
            return None
        answers = self._due(node_id)
        if fetches and not _renews(answers):
            wanted = tuple(sorted(partitions))
            asked = ShareQuestion(
                node_id=node_id,
                session_epoch=session.epoch,
                fetches=True,
                added=tuple(each for each in wanted if each not in session.partitions),
                forgotten=tuple(each for each in session.partitions if each not in wanted),
                acknowledged=answers,
            )
            session.partitions = wanted
        elif answers:
            asked = ShareQuestion(
                node_id=node_id, session_epoch=session.epoch, fetches=False, acknowledged=answers
            )
        else:
            return None
        session.asked = asked
        self._mark(answers)
        return asked

    def last_question(self, node_id: int) -> ShareQuestion | None:
        """Return the request that ends a session, with what is still to be acknowledged; nothing
        without a session, or while a request is in flight.
        """
        session = self._sessions.get(node_id)
        if session is None or session.epoch == FIRST_SESSION_EPOCH or session.asked is not None:
            return None
        answers = self._due(node_id)
        session.asked = ShareQuestion(
            node_id=node_id,
            session_epoch=FINAL_SESSION_EPOCH,
            fetches=False,
            acknowledged=answers,
        )
        self._mark(answers)
        return session.asked

    def _due(self, node_id: int) -> dict[TopicPartition, tuple[AnsweredRange, ...]]:
        found = {}
        for where in sorted(self._held):
            ready = [
                (offset, (record.answer, record.delivery_count))
                for offset, record in sorted(self._held[where].items())
                if record.node_id == node_id
                and record.answer is not None
                and not record.is_in_flight
            ]
            if ready:
                found[where] = tuple(_ranges(ready))
        return found

    def _mark(self, answers: Mapping[TopicPartition, tuple[AnsweredRange, ...]]) -> None:
        for where, ranges in answers.items():
            for each in ranges:
                for offset in range(each.first_offset, each.last_offset + 1):
                    self._held[where][offset].is_in_flight = True

    # Responses
    # ----------------------------------------------------------------------------------------------

    def answered(
        self,
        asked: ShareQuestion,
        error_code: ErrorCode,
        rows: Mapping[TopicPartition, ShareRow],
    ) -> list[AcknowledgementOutcome]:
        """Take a response, and return what became of the request's acknowledgements.

        An error of the whole request ends the session. Acquired ranges are held from now on.
        """
        session = self._sessions[asked.node_id]
        assert session.asked is asked, "a response without a request"
        if error_code is not ErrorCode.NONE or asked.session_epoch == FINAL_SESSION_EPOCH:
            outcomes = self._settle(
                asked,
                lambda where: (
                    error_code
                    if error_code is not ErrorCode.NONE
                    else _row(rows, where).acknowledge_error_code
                ),
            )
            self._end(asked.node_id)
            return outcomes
        session.asked = None
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        outcomes = self._settle(asked, lambda where: _row(rows, where).acknowledge_error_code)
        for where, row in rows.items():
            for each in row.acquired:
                self._hold(asked.node_id, where, each)
        return outcomes

    def lost(self, asked: ShareQuestion) -> list[AcknowledgementOutcome]:
        """Take note that there will be no response: the leader may have acted, or not, and the
        session is over.
        """
        assert self._sessions[asked.node_id].asked is asked, "a response without a request"
        outcomes = self._settle(asked, lambda where: None)
        self._end(asked.node_id)
        return outcomes

    def _hold(self, node_id: int, where: TopicPartition, acquired: AcquiredRange) -> None:
        held = self._held.setdefault(where, {})
        for offset in range(acquired.first_offset, acquired.last_offset + 1):
            held[offset] = HeldRecord(node_id=node_id, delivery_count=acquired.delivery_count)

    def _settle(
        self, asked: ShareQuestion, error_of: Callable[[TopicPartition], ErrorCode | None]
    ) -> list[AcknowledgementOutcome]:
        """Give up what is acknowledged; a renewed record is held on, and open to another answer."""
        outcomes = []
        for where, ranges in asked.acknowledged.items():
            error = error_of(where)
            held = self._held.get(where, {})
            for each in ranges:
                outcomes.append(AcknowledgementOutcome(where, each, error))
                for offset in range(each.first_offset, each.last_offset + 1):
                    record = held.get(offset)
                    if record is None or not record.is_in_flight or record.node_id != asked.node_id:
                        continue  # acquired again meanwhile, from another leader
                    if each.kind is AcknowledgeType.RENEW and error is ErrorCode.NONE:
                        record.answer, record.is_in_flight = None, False
                    else:
                        del held[offset]
        self._drop_empty()
        return outcomes

    def _end(self, node_id: int) -> None:
        del self._sessions[node_id]
        for held in self._held.values():
            for offset in [each for each, record in held.items() if record.node_id == node_id]:
                del held[offset]
        self._drop_empty()

    def _drop_empty(self) -> None:
        for where in [each for each, held in self._held.items() if not held]:
            del self._held[where]


def _row(rows: Mapping[TopicPartition, ShareRow], where: TopicPartition) -> ShareRow:
    return rows.get(where, ShareRow())


def _renews(answers: Mapping[TopicPartition, tuple[AnsweredRange, ...]]) -> bool:
    return any(each.kind is AcknowledgeType.RENEW for ranges in answers.values() for each in ranges)


def _ranges(
    answers: Iterable[tuple[int, tuple[AcknowledgeType, int]]],
) -> Iterable[AnsweredRange]:
    """Join neighbouring offsets with the same type and delivery count."""
    numbered = [(offset - index, said, offset) for index, (offset, said) in enumerate(answers)]
    for (_, said), group in groupby(numbered, key=lambda each: each[:2]):
        offsets = [offset for _, _, offset in group]
        yield AnsweredRange(offsets[0], offsets[-1], *said)
