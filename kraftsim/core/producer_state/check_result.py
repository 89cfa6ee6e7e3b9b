"""The result of checking a client's batch against the producer state.   Source: KIP-98, UnifiedLog.analyzeAndValidateProducerState."""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Append:
    """The batch is new and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is already in the log: acknowledge it again with these values, and write nothing.

    Both offsets are inclusive. The append time is the batch's maximum timestamp, even where a normal append returns -1.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    error: ErrorCode = ErrorCode.NONE
    """The error returned to the producer: none, except in a variant of KIP-758."""


APPEND: Final = Append()

CheckResult = Append | Duplicate | Refusal
