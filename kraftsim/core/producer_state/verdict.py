"""What producer state says of a batch that a client wants to append.   Source: KIP-98, UnifiedLog.analyzeAndValidateProducerState."""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Append:
    """The batch is new and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is in the log already: acknowledge it once more with these, and write nothing.

    Both offsets are inside. The append time is the batch's greatest timestamp, even where an ordinary append answers -1.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    error: ErrorCode = ErrorCode.NONE
    """What the producer is told beside it: none, but in a variant of KIP-758."""


APPEND: Final = Append()

Verdict = Append | Duplicate | Refusal
