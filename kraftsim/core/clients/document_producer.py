"""The transactional producer of KIP-447's text: an error of the group's fencing is fatal, and
offset commits without a member are rejected.

What shipped is milder: a commit that the group rejects is abortable, and the API without group
metadata stayed, unfenced.
Source: KIP-447 ("ProducerFencedException", "will throw if the old API is used"); KIP-588 and
KafkaProducer for what shipped.
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

FENCED_BY_ITS_GROUP = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


class DesignDocumentProducer(TransactionalProducer):
    """Treats errors as fatal that are abortable for the shipped one."""

    def meaning_of(self, question: Question, error: ErrorCode) -> Meaning:
        """Return how an error of a request is handled."""
        if isinstance(question, CommitOffsets) and error in FENCED_BY_ITS_GROUP:
            return Meaning.FATAL
        return super().meaning_of(question, error)

    def _on_application(
        self,
        happened: InitAsked | BeginAsked | OffsetsGiven | CommitAsked | AbortAsked,
        now_ms: int,
    ) -> None:
        if isinstance(happened, OffsetsGiven) and happened.group.generation_id == NO_GENERATION_ID:
            self._need_abort(
                ErrorCode.UNSUPPORTED_VERSION, "offsets are committed for a member of a group"
            )
            return
        super()._on_application(happened, now_ms)
