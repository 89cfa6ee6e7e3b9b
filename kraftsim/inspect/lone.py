"""Frames and batches without a capture, from hex or a file: their type is given, or guessed and
reported.

Source: a response does not contain its type; only the client that sent the request knows it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftsim.inspect.frames import (
    SIZE,
    AskedFrame,
    CapturedFrame,
    FrameKind,
    dissect_request,
    dissect_response,
)
from kraftsim.inspect.likeness import (
    fitting_responses,
    frame_spans,
    looks_like_batch,
    looks_like_header,
    resembles_batches,
)
from kraftsim.inspect.meaning import MeaningNames, explain, open_values
from kraftsim.inspect.parts import DecodeTrouble, Tree
from kraftsim.inspect.records import dissect_batches

OTHERS_SHOWN: Final = 5
GUESSED_BYTES_MAX: Final = 1 << 20
"""Longer responses are not decoded as every type."""


class Hint(Enum):
    """The type of the bytes given by the caller."""

    NOTHING = "nothing"
    REQUEST = "request"
    BATCH = "batch"


@dataclass(slots=True, kw_only=True)
class FoundFrame:
    """A frame, or batches; `said` is the guess about it, empty if the type was given."""

    content: bytes
    tree: Tree
    frame: CapturedFrame | None = None
    said: str = ""
    start: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        """The number of bytes, including those of a frame's size if it is present."""
        return self.end - self.start + (SIZE.size if self.start >= SIZE.size else 0)


def dissect_lone(
    content: bytes,
    declared: Hint | AskedFrame,
    *,
    topic: str | None = None,
    with_records: bool = True,
) -> Iterator[FoundFrame]:
    """Yield the frames, or the batches as one, in some bytes.

    `topic` is the topic of the records.
    """
    names = MeaningNames()
    if declared is Hint.BATCH or (declared is Hint.NOTHING and looks_like_batch(content)):
        yield _batches(
            content,
            topic,
            names,
            ""
            if declared is Hint.BATCH
            else "record batches, as the checksum of the first one says",
            with_records,
        )
        return
    if declared is Hint.NOTHING and resembles_batches(content):
        yield _batches(
            content, topic, names, "record batches, as their lengths and formats say", with_records
        )
        return
    for start, end in frame_spans(content):
        found = _frame(content, start, end, declared)
        if start == 0 and not isinstance(declared, AskedFrame):
            found = _behind_wrong_size(content, end, found) or found
        if found is None:
            found = FoundFrame(
                content=content,
                tree=Tree(),
                said="neither a request, nor a response to anything known, nor a batch",
                start=start,
                end=end,
            )
        if found.frame is not None:
            explain(found.frame, names, with_records=with_records)
            begin = found.start
            announced = (
                int.from_bytes(content[begin - SIZE.size : begin])
                if begin >= SIZE.size
                else end - begin
            )
            if announced != end - begin:
                prefix = "the frame is truncated: " if announced > end - begin else ""
                reason = f"{prefix}its size is {announced} bytes, {end - begin} are present"
                found.tree.troubles.append(
                    DecodeTrouble(path="", position=begin - SIZE.size, reason=reason)
                )
        yield found


def _frame(content: bytes, start: int, end: int, declared: Hint | AskedFrame) -> FoundFrame | None:
    """Decode one frame; None if it matches no known type."""
    if isinstance(declared, AskedFrame):
        return _found(dissect_response(content, declared, start, end), start, end)
    if declared is Hint.REQUEST:
        return _found(dissect_request(content, start, end), start, end)
    request = dissect_request(content, start, end)
    is_like_request = looks_like_header(content, start, end)
    if is_like_request and request.tree.is_whole and not request.is_unknown:
        return _found(request, start, end, "a request, as its header says")
    responses = fitting_responses(content, start, end) if end - start <= GUESSED_BYTES_MAX else []
    if responses:
        return _found(responses[0], start, end, _guess(responses))
    return _found(request, start, end, "a request, as its header says") if is_like_request else None


def _behind_wrong_size(content: bytes, end: int, otherwise: FoundFrame | None) -> FoundFrame | None:
    """Treat the first four bytes as a wrong size, if a request after them is more likely than the
    other matches.
    """
    frame = None if otherwise is None else otherwise.frame
    is_certain = (
        frame is not None
        and frame.kind is FrameKind.REQUEST
        and frame.tree.is_whole
        and not frame.is_unknown
    )
    if is_certain or end <= SIZE.size or not looks_like_header(content, SIZE.size, end):
        return None
    request = dissect_request(content, SIZE.size, end)
    if request.is_unknown or (
        not request.tree.is_whole and frame is not None and not frame.is_unknown
    ):
        return None
    return _found(
        request, SIZE.size, end, "a request, as its header says, behind a size that is wrong"
    )


def _found(frame: CapturedFrame, start: int, end: int, said: str = "") -> FoundFrame:
    return FoundFrame(
        content=frame.content, tree=frame.tree, frame=frame, said=said, start=start, end=end
    )


def _guess(responses: list[CapturedFrame]) -> str:
    words = [f"{frame.api_name} v{frame.api_version}" for frame in responses]
    if len(words) == 1:
        return f"a response to {words[0]}: nothing else fits"
    others = ", ".join(words[1 : 1 + OTHERS_SHOWN]) + (
        ", ..." if len(words) > 1 + OTHERS_SHOWN else ""
    )
    return (
        f"a response to {words[0]}; {len(words) - 1} others fit as well: {others} (use "
        "--response API VERSION)"
    )


def _batches(
    content: bytes, topic: str | None, names: MeaningNames, said: str, with_records: bool
) -> FoundFrame:
    tree = Tree()
    tree.parts = dissect_batches(
        content, 0, len(content), "", tree.troubles, with_records=with_records
    )
    tree.troubles += open_values(tree.parts, "", topic, names, guess=topic is None)
    return FoundFrame(content=content, tree=tree, said=said, end=len(content))
