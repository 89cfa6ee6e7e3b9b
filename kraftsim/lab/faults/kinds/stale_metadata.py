"""A server sends an older answer to the same Metadata request in place of the new one: a broker
that lags behind.

Clients must handle it (with the leader epochs of KIP-320): they send requests to a former leader,
get an error, and refresh their metadata.
"""

from collections.abc import Hashable

from kraftsim.lab.faults.awaited_frame import await_frame
from kraftsim.lab.faults.fault import Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.recorded_answers import SIZE_FIELD_BYTES, RecordedAnswers
from kraftsim.world.simulated import FrameSeen
from protocol.api_keys import ApiKey
from protocol.requests import read_request_head

METADATA = int(ApiKey.METADATA)


def prepare(injection: Injection) -> None:
    """Start recording answers."""
    injection.recorded = RecordedAnswers(injection, (METADATA,), _question)


def inject(injection: Injection) -> None:
    """Replace the target's next answers for which an older, different one was recorded; it is
    effective with the first.
    """
    recorded = injection.recorded
    assert recorded is not None, "answers are recorded since the fault was armed"
    left = injection.integer("times")

    def older(answers: list[bytes], current: bytes) -> bytes | None:
        nonlocal left
        others = [answer for answer in answers if answer != current]
        if not others or left == 0:
            return None
        left -= 1
        injection.record_effect("an answer to Metadata was replaced by an old one")
        return others[-min(injection.integer("age"), len(others))]

    def act(frame: FrameSeen) -> bool:
        if left and frame.request is not None and frame.request.data:
            recorded.replace(frame, older)
        return left == 0

    await_frame(injection, act, is_response=True, apis=(METADATA,))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


def _question(frame: FrameSeen) -> Hashable:
    """Return server, request and version of an answer."""
    assert frame.request is not None, "only answers to recorded requests are looked at"
    request = frame.request.data[SIZE_FIELD_BYTES:]
    return frame.server, frame.api_version, request[read_request_head(request).body_position :]


FAULT = FaultKind(
    name="stale-metadata",
    title="a stale answer to Metadata",
    family=Family.PROTOCOL,
    inject=inject,
    prepare=prepare,
    params={"age": 1, "times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"age": Between(1, 8), "times": Between(1, 5), "duration_ms": Between(500, 8000)},
)
