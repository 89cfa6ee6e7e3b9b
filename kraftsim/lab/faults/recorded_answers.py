"""Records the answers of servers, so that an older answer can replace a newer one.

The bytes behind the correlation id are recorded; an answer fits every request of the same version.
"""

import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from kraftsim.world.simulated import FrameSeen, Simulation

RESPONSE_HEAD = struct.Struct(">ii")
"""size, correlation id"""
SIZE_FIELD_BYTES = 4
REMEMBERED_MAX = 32
"""How many different answers are kept for one key; the oldest are dropped first."""

KeyOf = Callable[[FrameSeen], Hashable]
"""A response with a recorded request -> the key under which its answers are interchangeable."""
Pick = Callable[[list[bytes], bytes], bytes | None]
"""The recorded answers, oldest first, and the one that is about to be sent -> its replacement;
None: no replacement.
"""


class RecordingInjection(Protocol):
    """The armed fault that replaces answers."""

    @property
    def simulation(self) -> Simulation:
        """The simulation whose answers are recorded."""
        ...

    def finally_(self, ending: Callable[[], object]) -> None:
        """Call back once the fault has ended."""
        ...


class RecordedAnswers:
    """The answers since a fault was armed."""

    def __init__(
        self, injection: RecordingInjection, api_keys: Sequence[int], key_of: KeyOf
    ) -> None:
        self._api_keys = api_keys
        self._key_of = key_of
        self._answers: dict[Hashable, list[bytes]] = {}
        injection.finally_(injection.simulation.triggers.follow_frames(self._look))

    def replace(self, frame: FrameSeen, pick: Pick) -> None:
        """Replace the content of a response that is about to be sent, if `pick` finds one; `pick`
        is called once the response is complete.
        """

        def instead(data: bytes) -> bytes:
            current = data[RESPONSE_HEAD.size :]
            content = pick(self._answers.get(self._key_of(frame), []), current)
            return (
                data
                if content is None
                else RESPONSE_HEAD.pack(
                    len(content) + RESPONSE_HEAD.size - SIZE_FIELD_BYTES, frame.correlation_id
                )
                + content
            )

        frame.rewrite(instead)

    def _look(self, frame: FrameSeen, moment: str) -> None:
        if moment != "before" or frame.api_key not in self._api_keys:
            return
        if not frame.is_response:
            frame.rewrite(lambda data: data)
        elif frame.request is not None and frame.request.data:
            frame.rewrite(lambda data: self._remember(frame, data))

    def _remember(self, frame: FrameSeen, data: bytes) -> bytes:
        answers = self._answers.setdefault(self._key_of(frame), [])
        content = data[RESPONSE_HEAD.size :]
        if not answers or answers[-1] != content:
            answers.append(content)
            del answers[:-REMEMBERED_MAX]
        return data
