"""Requests with many entries: decoded, executed and answered in several event-loop turns, so that
other clients are served in between.

Decoding a body and encoding a response do not touch state and run in a thread; the handler serves
one slice of the entries per turn, or the whole request if its entries are decided together, and all
large requests of a node take turns. A connection serves no later request meanwhile, so that its
responses stay in order. A request continues if its client disconnects.

Apache Kafka serves requests in several threads (num.io.threads), so that a large one delays only
those behind it.
Source: kafka.server.KafkaRequestHandlerPool.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Connection,
    Deferred,
    Encoded,
    Failed,
    LargeCall,
    NoAnswer,
    completed_by,
    reason_of,
)
from kraftsim.server.frame_server import ANSWERED, encoding_failed
from kraftsim.server.shell import NodeShell
from kraftsim.server.slices import ENTRIES_PER_SLICE, SlicePart, Slices, Turns
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, decode_request, response_chunks, route_of
from protocol.schema import Message

T = TypeVar("T")
R = TypeVar("R")
NOT_MESSAGES: Final = (Encoded, NoAnswer, Closing, Failed)
SIZE_AND_CORRELATION_ID_BYTES: Final = 8
OnUnforeseen = Callable[[Call, Exception], Answer]
Handle = Callable[[Call], Answer | Deferred]


class LargeRequest:
    """One request in progress. `later` gets its response."""

    def __init__(
        self,
        head: RequestHead,
        frame: bytes,
        connection: Connection,
        node: object,
        handle: Handle,
        slices: Slices | None,
        on_unforeseen: OnUnforeseen,
    ) -> None:
        self.later = Deferred()
        self._head = head
        self._frame = frame
        self._connection = connection
        self._node = node
        self._handle = handle
        self._slices = slices
        self._on_unforeseen = on_unforeseen
        self._is_abandoned = False
        self._waiting: list[tuple[Deferred, asyncio.Future[None]]] = []
        self.later.when_abandoned(self._on_abandoned)

    async def run(self, shell: NodeShell) -> None:
        """Serve the request. Raises AssertionError, which stops the node."""
        head, frame, world = self._head, self._frame, shell.world
        try:
            async with shell.turns.room:
                body = await world.aside(lambda: decode_request(head, frame))
                await shell.turns.next()
                parts, given = await self._carried_out(body, shell.turns)
            answer = await self._answered(parts, given)
        except MalformedMessage as malformed:
            answer = Closing(str(malformed))
        if answer is not None and not self._is_abandoned:
            self.later.complete(await encoded(world, head.api_key, head.api_version, answer))

    async def _carried_out(
        self, body: Message, turns: Turns
    ) -> tuple[list[SlicePart], list[Answer | Deferred]]:
        """Return the parts of the request, and the handler's result for each; for the whole
        request, if it failed.
        """
        whole = LargeCall(self._head, body, self._connection, None)
        slices = self._slices
        parts: list[SlicePart] = []
        given: list[Answer | Deferred] = []
        try:
            for part in [SlicePart(body)] if slices is None else slices.parts(body, self._node):
                if given:
                    await turns.next()
                parts.append(part)
                given.append(
                    self._handle(
                        whole
                        if part.body is body
                        else LargeCall(self._head, part.body, self._connection, whole)
                    )
                )
        except (AssertionError, MalformedMessage):
            raise
        # top-level handler: as in Kafka an unexpected exception is answered with error -1
        except Exception as unforeseen:
            return [SlicePart(body)], [self._on_unforeseen(whole, unforeseen)]
        return parts, given

    async def _answered(
        self, parts: list[SlicePart], given: list[Answer | Deferred]
    ) -> Answer | None:
        """Return the response; None if the client has disconnected."""
        answers = [
            await self._awaited(each) if isinstance(each, Deferred) else each for each in given
        ]
        found = [each for each in answers if each is not None]
        if len(found) < len(answers):
            return None
        return (
            found[0]
            if self._slices is None or len(found) == 1
            else _joined(self._slices, parts, found)
        )

    async def _awaited(self, deferred: Deferred) -> Answer | None:
        if deferred.answer is None and not self._is_abandoned:
            is_there = asyncio.get_running_loop().create_future()
            waiting = (deferred, is_there)
            self._waiting.append(waiting)
            deferred.attach(lambda: None if is_there.done() else is_there.set_result(None))
            await is_there
            self._waiting.remove(waiting)
        if deferred.answer is None:
            deferred.abandon()
        return deferred.answer

    def _on_abandoned(self) -> None:
        """The client has disconnected: executed or started work is not reverted."""
        self._is_abandoned = True
        for _, is_there in self._waiting:
            if not is_there.done():
                is_there.set_result(None)


async def encoded(world: World, api_key: int, api_version: int, answer: Answer) -> Answer:
    """Return an encoded response, encoded in a thread; one with records stays a message, because
    records are not copied.
    """
    if isinstance(answer, NOT_MESSAGES) or route_of(api_key, api_version).response_holds_records:
        return answer
    message = answer
    try:
        chunks = await world.aside(lambda: response_chunks(api_key, api_version, 0, message))
    except (
        Exception
    ) as failure:  # a value that cannot be encoded, such as a string of more than 32,767 bytes
        return encoding_failed(failure)
    return Encoded(b"".join(chunks)[SIZE_AND_CORRELATION_ID_BYTES:])


def process_entries(
    shell: NodeShell,
    call: Call,
    entries: Sequence[T],
    look: Callable[[T], R],
    go_on: Callable[[Sequence[R]], Answer | Deferred],
) -> Answer | Deferred:
    """Apply `look` to each entry and return the result of `go_on`; a large call, or one with many
    entries, is processed slice by slice.
    """
    if not call.is_large and len(entries) <= ENTRIES_PER_SLICE:
        return go_on([look(entry) for entry in entries])
    later = Deferred()

    async def look_in_slices() -> None:
        found: list[R] = []
        try:
            for first in range(0, len(entries), ENTRIES_PER_SLICE):
                found += [look(entry) for entry in entries[first : first + ENTRIES_PER_SLICE]]
                await shell.turns.next()
            answer = go_on(found)
        except AssertionError:
            raise
        except Exception as unforeseen:
            answer = Failed(f"the handler failed: {reason_of(unforeseen)}")
        completed_by(answer, later)

    shell.tasks.spawn(look_in_slices(), "look-in-slices")
    return later


async def or_refused(
    work: Awaitable[None], later: Deferred, call: Call, refuse: Callable[[Call, ErrorCode], Answer]
) -> None:
    """Run the rest of a handler in several turns; if it fails, its request fails as if it had taken
    one turn.
    """
    try:
        await work
    except AssertionError:
        raise
    except Exception as unforeseen:
        call.connection.emit_refused(
            call, f"the handler failed: {reason_of(unforeseen)}", action=ANSWERED
        )
        later.complete_with(lambda: refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR))


def _joined(slices: Slices, parts: Sequence[SlicePart], answers: Sequence[Answer]) -> Answer:
    """Return the joined response; an answer that is not a message stands for the whole request."""
    messages: list[Message] = []
    others: list[Answer] = []
    for answer in answers:
        if isinstance(answer, NOT_MESSAGES):
            others.append(answer)
        else:
            messages.append(answer)
    if not others:
        return slices.join(parts, messages)
    return next((other for other in others if not isinstance(other, NoAnswer)), others[0])
