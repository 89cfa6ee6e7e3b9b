"""How the active controller decides a request of many entries: in steps, and as if it had been at once.

Looking changes nothing, so it may be done a step in each turn of the loop; should the state change meanwhile, what was found is thrown away and
looked for again in one turn. Large requests are decided one after the other, so that none changes the state under another one. Writing is one turn:
Kafka's controller handles one event after the other, and so does this one.
Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kraftsim.core.decision import Decision, Steps, ends_step, whole
from kraftsim.node.call import Answer, Call, Deferred, Failed, completed_by, reason_of
from kraftsim.node.controller.ledger import MetadataLedger
from protocol.errors import ErrorCode
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller

Decided = TypeVar("Decided")


def decide(
    controller: "Controller", call: Call, look: Callable[[], Steps[Decided]], carry_out: Callable[[Decided], Answer | Deferred]
) -> Answer | Deferred:
    """Return what `carry_out` makes of the decision that `look` comes to; in several turns for a large call.

    Only the ledger of a metadata log knows whether it changed between two steps: in ZooKeeper mode requests are decided in one turn.
    """
    ledger, later, refuse = controller.ledger, Deferred(), controller.ledger.refuse
    if not call.is_large or refuse is None or not isinstance(ledger, MetadataLedger):
        return carry_out(whole(look()))

    async def decide_in_steps() -> None:
        async with ledger.deciding:
            try:
                decided = await _looked(controller, look)
                if controller.is_active:
                    ledger.refuse = refuse
                    answer = carry_out(decided)
                else:
                    answer = refuse(ErrorCode.NOT_CONTROLLER)
            except AssertionError:
                raise
            except Exception as unforeseen:
                answer = Failed(f"the handler failed: {reason_of(unforeseen)}")
            finally:
                ledger.refuse = None
                ledger.encoded.clear()
        completed_by(answer, later)

    controller.shell.tasks.spawn(decide_in_steps(), "decide-in-steps")
    return later


async def _looked(controller: "Controller", look: Callable[[], Steps[Decided]]) -> Decided:
    """Return what steps come to while the state stays as it is; what they come to at once if it does not."""
    ledger, steps = controller.ledger, look()
    before = ledger.change_count
    while ledger.change_count == before:
        try:
            next(steps)
        except StopIteration as end:
            decided: Decided = end.value
            if isinstance(decided, Decision):
                await _encode_ahead(controller, decided.records)
            if ledger.change_count == before:
                return decided
            break
        await controller.shell.turns.next()
    ledger.encoded.clear()
    return whole(look())


async def _encode_ahead(controller: "Controller", records: Sequence[Message]) -> None:
    """Encode records before they are written, so that writing them is short."""
    ledger = controller.ledger
    for index, record in enumerate(records):
        ledger.encode_ahead(record)
        if ends_step(index):
            await controller.shell.turns.next()
