"""A server gives an older answer to Metadata in the place of the new one, to the same question: a broker that lags behind.

Clients must live with it (KIP-320 gave them leader epochs to notice): they ask the wrong leader, are told so, and ask again.
"""

from collections.abc import Hashable

from kraftsim.faults.awaited_frame import await_frame
from kraftsim.faults.fault import Between, Family, FaultKind
from kraftsim.faults.recorded_answers import SIZE_FIELD_BYTES, RecordedAnswers
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FrameSeen
from protocol.api_keys import ApiKey
from protocol.requests import read_request_head

METADATA = int(ApiKey.METADATA)


def prepare(strike: Strike) -> None:
    """Begin to remember what was answered."""
    strike.recorded = RecordedAnswers(strike, (METADATA,), _question)


def strike(strike: Strike) -> None:
    """Replace the target's next answers for which an older, different one is known; it bites with the first."""
    recorded = strike.recorded
    assert recorded is not None, "answers are recorded since the fault was armed"
    left = strike.integer("times")

    def older(answers: list[bytes], current: bytes) -> bytes | None:
        nonlocal left
        others = [answer for answer in answers if answer != current]
        if not others or left == 0:
            return None
        left -= 1
        strike.bite("an answer to Metadata was an old one")
        return others[-min(strike.integer("age"), len(others))]

    def act(frame: FrameSeen) -> bool:
        if left and frame.request is not None and frame.request.data:
            recorded.replace(frame, older)
        return left == 0

    await_frame(strike, act, is_response=True, apis=(METADATA,))
    strike.lasting(lambda: None, strike.integer("duration_ms"))


def _question(frame: FrameSeen) -> Hashable:
    """Return who was asked what, in which version."""
    assert frame.request is not None, "only answers to requests that were kept are looked at"
    request = frame.request.data[SIZE_FIELD_BYTES:]
    return frame.server, frame.api_version, request[read_request_head(request).body_position :]


FAULT = FaultKind(
    name="stale-metadata",
    title="an old answer to Metadata",
    family=Family.PROTOCOL,
    strike=strike,
    prepare=prepare,
    params={"age": 1, "times": 1, "duration_ms": 10_000},
    strikes_on=("time", "frame", "event", "state"),
    draws={"age": Between(1, 8), "times": Between(1, 5), "duration_ms": Between(500, 8000)},
)
