"""The transactional producer that KIP-447's text describes: who is fenced by its group is at its end, and offsets are a member's or are refused.

What shipped is milder: a commit that the group refuses is aborted and the producer lives on, and the call without a member stayed, unfenced.
Source: KIP-447 ("ProducerFencedException", "will throw if the old API is used"); KIP-588 and KafkaProducer for what shipped.
"""

from kraftsim.core.clients.transaction_errors import Meaning
from kraftsim.core.clients.transaction_steps import (
    NO_GENERATION_ID,
    AbortAsked,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    InitAsked,
    OffsetsGiven,
    Question,
)
from kraftsim.core.clients.transactional_producer import TransactionalProducer
from protocol.errors import ErrorCode

FENCED_BY_ITS_GROUP = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class DocumentProducer(TransactionalProducer):
    """Ends where the shipped one aborts."""

    def meaning_of(self, question: Question, error: ErrorCode) -> Meaning:
        """Return what an error means in answer to a question."""
        if isinstance(question, CommitOffsets) and error in FENCED_BY_ITS_GROUP:
            return Meaning.FATAL
        return super().meaning_of(question, error)

    def _on_application(self, happened: InitAsked | BeginAsked | OffsetsGiven | CommitAsked | AbortAsked, now_ms: int) -> None:
        if isinstance(happened, OffsetsGiven) and happened.group.generation_id == NO_GENERATION_ID:
            self._need_abort(ErrorCode.UNSUPPORTED_VERSION, "offsets are committed for a member of a group")
            return
        super()._on_application(happened, now_ms)
