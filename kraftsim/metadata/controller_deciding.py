"""Decides large requests of the active controller in several event-loop turns, with the result of a
single atomic decision.

Computing a decision does not change state, so it may yield between steps; if the state changes
meanwhile, the result is discarded and computed again in one turn. Large requests are decided one at
a time, so that none changes the state under another. Writing takes one turn: Kafka's controller
handles one event at a time, and so does this one.
Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kraftsim.core.decision import Decision, Steps, ends_step, whole
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.metadata_writer import MetadataWriter
from kraftsim.server.call import Answer, Call, Deferred, Failed, completed_by, reason_of
from kraftsim.server.slices import Turns
from protocol.errors import ErrorCode
from protocol.schema import Message

Decided = TypeVar("Decided")


def decide(
    controller: DecidingController,
    call: Call,
    look: Callable[[], Steps[Decided]],
    carry_out: Callable[[Decided], Answer | Deferred],
) -> Answer | Deferred:
    """Return the result of `carry_out` for the decision computed by `look`; in several turns for a
    large call.

    Only the metadata writer of a KRaft controller can detect changes between two steps: in
    ZooKeeper mode requests are decided in one turn.
    """
    writer, later, refuse = (
        controller.metadata_writer,
        Deferred(),
        controller.metadata_writer.refuse,
    )
    if not call.is_large or refuse is None or not isinstance(writer, MetadataWriter):
        return carry_out(whole(look()))

    async def decide_in_steps() -> None:
        async with writer.deciding:
            try:
                decided = await _looked(writer, controller.shell.turns, look)
                if controller.is_active:
                    writer.refuse = refuse
                    answer = carry_out(decided)
                else:
                    answer = refuse(ErrorCode.NOT_CONTROLLER)
            except AssertionError:
                raise
            except Exception as unforeseen:
                answer = Failed(f"the handler failed: {reason_of(unforeseen)}")
            finally:
                writer.refuse = None
                writer.encoded.clear()
        completed_by(answer, later)

    controller.shell.tasks.spawn(decide_in_steps(), "decide-in-steps")
    return later


async def _looked(
    writer: MetadataWriter, turns: Turns, look: Callable[[], Steps[Decided]]
) -> Decided:
    """Run the steps while the state is unchanged; if it changes, compute the decision in one
    turn.
    """
    steps = look()
    before = writer.change_count
    while writer.change_count == before:
        try:
            next(steps)
        except StopIteration as end:
            decided: Decided = end.value
            if isinstance(decided, Decision):
                await _encode_ahead(writer, turns, decided.records)
            if writer.change_count == before:
                return decided
            break
        await turns.next()
    writer.encoded.clear()
    return whole(look())


async def _encode_ahead(writer: MetadataWriter, turns: Turns, records: Sequence[Message]) -> None:
    """Encode records in advance, so that writing them takes one short turn."""
    for index, record in enumerate(records):
        writer.encode_ahead(record)
        if ends_step(index):
            await turns.next()
