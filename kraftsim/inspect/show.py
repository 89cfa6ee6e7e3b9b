"""Prints decoded frames, as text or as one JSON object per line, and counts what could not be
decoded.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from kraftsim.inspect.conversation import Exchange, Notice
from kraftsim.inspect.frames import CapturedFrame, FrameKind, is_declared
from kraftsim.inspect.hex_text import hexdump
from kraftsim.inspect.json_lines import (
    Json,
    json_of,
    json_of_parts,
    json_of_spans,
    json_of_troubles,
)
from kraftsim.inspect.lone import FoundFrame
from kraftsim.inspect.text import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Look, tree_lines, value_text

UNREAD_BYTES_SHOWN: Final = 64
NANOSECONDS: Final = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class Show:
    """How to print.

    `apis`: only frames of these keys, empty for all; `is_brief`: one line per frame.
    """

    as_json: bool = False
    with_offsets: bool = True
    is_brief: bool = False
    apis: frozenset[int] = frozenset()
    limit: int | None = None
    look: Look = field(default_factory=Look)
    shown: int = 0
    frames: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    unread: int = 0
    notices: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the limit of frames is reached."""
        return self.limit is not None and self.shown >= self.limit

    def exchange(self, exchange: Exchange) -> Iterator[str]:
        """Yield the lines of a frame of a capture."""
        frame = exchange.frame
        if self.apis and frame.api_key not in self.apis:
            return
        self._count(frame, exchange.said)
        if self.as_json:
            yield _dumped({**_json_of_exchange(exchange), **self._json_of_frame(frame)})
            return
        yield self._head(exchange)
        if not self.is_brief:
            yield from self._insides(frame, exchange.said)
            yield ""

    def notice(self, notice: Notice) -> Iterator[str]:
        """Yield the remarks about a connection."""
        self.notices += 1
        if self.as_json:
            shown: dict[str, Json] = {
                "notice": notice.text,
                "client": str(notice.client),
                "node": str(notice.node),
                "packet": notice.packet,
            }
            yield _dumped(
                {**shown, "start": {"hex": notice.start.hex()}} if notice.start else shown
            )
            return
        yield self.look.paint(
            f"-- {notice.client} and {notice.node}, packet {notice.packet}: {notice.text}", YELLOW
        )
        if not self.is_brief:
            yield from (self.look.paint(f"        {line}", DIM) for line in hexdump(notice.start))
            yield ""

    def found(self, found: FoundFrame) -> Iterator[str]:
        """Yield the lines of a frame or of batches without a capture."""
        if found.frame is not None:
            self._count(found.frame, "")
        else:
            self.malformed += bool(found.tree.troubles)
            self.unread += not found.tree.parts and not found.tree.troubles
            self.shown += 1
        if self.as_json:
            yield _dumped(self._json_of_found(found))
            return
        if found.said:
            yield self.look.paint(f"guessed: {found.said}", YELLOW)
        if found.frame is not None:
            yield self._title(found.frame) + f"  {found.size} bytes"
            yield from self._insides(found.frame, "")
        elif found.tree.parts or found.tree.troubles:
            yield self.look.paint(
                f"{len(found.tree.parts)} record batches, {found.end} bytes", BOLD
            )
            yield from tree_lines(found.tree, found.content, self.look)
        else:
            yield from hexdump(found.content)

    def _count(self, frame: CapturedFrame, said: str) -> None:
        self.shown += 1
        self.frames[
            f"{frame.api_name} v{frame.api_version}" if frame.api_key >= 0 else "unknown"
        ] += 1
        if frame.tree.troubles:
            self.malformed += 1
        elif said or frame.is_unknown:
            self.unread += 1

    def _head(self, exchange: Exchange) -> str:
        look, frame = self.look, exchange.frame
        is_request = frame.kind is FrameKind.REQUEST
        words = [
            look.paint(f"#{exchange.number}", BOLD),
            look.paint(_time_text(exchange.time_ns), DIM),
        ]
        words.append(f"{exchange.client} {'->' if is_request else '<-'} {exchange.node}")
        words.append(self._title(frame))
        if exchange.after_ns is not None:
            words.append(
                look.paint(
                    f"answers #{exchange.answers} after {exchange.after_ns / 1_000_000:.3f} ms", DIM
                )
            )
        words.append(f"{len(frame.content)} bytes")
        if exchange.said:
            words.append(look.paint(exchange.said, YELLOW))
        elif frame.tree.troubles and self.is_brief:
            words.append(look.paint(f"!! {frame.tree.troubles[0]}", RED))
        return "  ".join(words)

    def _title(self, frame: CapturedFrame) -> str:
        if frame.api_key < 0:
            return self.look.paint(f"unknown {frame.kind.value}", RED)
        colour = CYAN if frame.kind is FrameKind.REQUEST else GREEN
        title = self.look.paint(f"{frame.api_name} v{frame.api_version} {frame.kind.value}", colour)
        if frame.body_version != frame.api_version:
            title += (
                f" (in version {frame.body_version}, because version {frame.api_version} is not "
                "known to the node)"
            )
        title += f"  correlation {frame.correlation_id}"
        return (
            title
            if frame.client_id is None
            else f"{title}  client {value_text(frame.client_id, self.look)}"
        )

    def _insides(self, frame: CapturedFrame, said: str) -> Iterator[str]:
        yield from tree_lines(frame.tree, frame.content, self.look)
        if frame.is_unknown:
            if not said and not is_declared(frame.api_key, frame.api_version):
                yield self.look.paint(
                    f"     ?? {frame.api_name} v{frame.api_version} is not known here; the body "
                    "stays shut",
                    YELLOW,
                )
            yield from (
                self.look.paint(f"        {line}", DIM)
                for line in hexdump(frame.content[:UNREAD_BYTES_SHOWN])
            )
            if len(frame.content) > UNREAD_BYTES_SHOWN:
                yield self.look.paint(
                    f"          ... {len(frame.content) - UNREAD_BYTES_SHOWN} bytes behind", DIM
                )

    def _json_of_frame(self, frame: CapturedFrame) -> dict[str, Json]:
        shown: dict[str, Json] = {
            part.name: json_of_parts(part.parts or []) for part in frame.tree.parts
        }
        if self.with_offsets:
            shown["offsets"] = json_of_spans(frame.tree)
        if frame.tree.troubles:
            shown["troubles"] = json_of_troubles(frame.tree.troubles)
        if frame.is_unknown:
            shown["content"] = {"hex": frame.content.hex()}
        return shown

    def _json_of_found(self, found: FoundFrame) -> dict[str, Json]:
        shown: dict[str, Json] = {"guessed": found.said} if found.said else {}
        if found.frame is not None:
            return {
                **shown,
                **_json_of_head(found.frame, found.size),
                **self._json_of_frame(found.frame),
            }
        shown["batches"] = [json_of(part) for part in found.tree.parts]
        if self.with_offsets:
            shown["offsets"] = json_of_spans(found.tree)
        if found.tree.troubles:
            shown["troubles"] = json_of_troubles(found.tree.troubles)
        if not found.tree.parts and not found.tree.troubles:
            shown["content"] = {"hex": found.content.hex()}
        return shown


def _json_of_exchange(exchange: Exchange) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "number": exchange.number,
        "packet": exchange.packet,
        "time": _time_text(exchange.time_ns),
        "client": str(exchange.client),
        "node": str(exchange.node),
        **_json_of_head(exchange.frame, len(exchange.frame.content)),
    }
    if exchange.answers is not None and exchange.after_ns is not None:
        shown |= {"answers": exchange.answers, "after_ms": exchange.after_ns / 1_000_000}
    if exchange.said:
        shown["said"] = exchange.said
    return shown


def _json_of_head(frame: CapturedFrame, size: int) -> dict[str, Json]:
    shown: dict[str, Json] = {"way": frame.kind.value}
    if frame.api_key >= 0:
        shown |= {"api_key": frame.api_key, "api": frame.api_name, "version": frame.api_version}
    if frame.body_version != frame.api_version:
        shown["body_version"] = frame.body_version
    shown |= {"correlation_id": frame.correlation_id, "size": size}
    if frame.client_id is not None:
        shown["client_id"] = frame.client_id
    return shown


def _time_text(time_ns: int) -> str:
    return (
        datetime.fromtimestamp(time_ns // NANOSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        + f".{time_ns % NANOSECONDS // 1000:06d}Z"
    )


def _dumped(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
