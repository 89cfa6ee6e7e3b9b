"""Packet captures, pcap and pcapng: one TCP segment after another, with its time and the number of
bytes that were not captured.

dpkt decodes the layers of a packet. The capture files are read here: a pcapng of several interfaces
has several link types and clocks, and a truncated capture must be reported.
Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng; the link types of tcpdump.org.
"""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import IO, Final, NamedTuple, cast

import dpkt

PCAP_MAGICS: Final = tuple(
    bytes.fromhex(magic)
    for magic in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "a1b2cd34", "34cdb2a1")
)
NANOSECOND_MARK, MODIFIED_MARK = 0x3C, 0xCD
"""The byte of the magic that distinguishes the three kinds of pcap: microseconds, nanoseconds, and
one of 1997 with longer packet headers.
"""
PCAPNG_MAGIC: Final = bytes.fromhex("0a0d0d0a")
GZIP_MAGIC: Final = b"\x1f\x8b"
SECTION, INTERFACE, SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 3, 6
OPTION_RESOLUTION, OPTION_OFFSET = 9, 14
BLOCK_BYTES_MAX: Final = 1 << 28
NANOSECONDS: Final = 1_000_000_000
FIN, SYN, RST = 0x01, 0x02, 0x04


class NoCapture(ValueError):
    """The file is not a capture, or is damaged."""


class PacketEndpoint(NamedTuple):
    """One end of a TCP connection."""

    address: bytes
    port: int

    def __str__(self) -> str:
        host = str(ip_address(self.address))
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSegment:
    """A TCP segment; `number` counts the packets of the capture from 1.

    `lost_bytes` were sent after the payload, but not captured.
    """

    number: int
    time_ns: int
    source: PacketEndpoint
    target: PacketEndpoint
    sequence: int
    acknowledged: int | None
    flags: int
    payload: bytes
    lost_bytes: int


@dataclass(slots=True)
class PacketTally:
    """The counts of a capture."""

    packets: int = 0
    segments: int = 0
    fragments: int = 0
    unknown_links: int = 0
    read_bytes: int = 0
    ends_early: bool = False


class _Packet(NamedTuple):
    time_ns: int
    link: int
    content: bytes


def is_capture(start: bytes) -> bool:
    """Return from the first bytes of a file whether it is a capture, also a compressed one."""
    return start[:4] in PCAP_MAGICS or start[:4] == PCAPNG_MAGIC


def opened(file: IO[bytes]) -> IO[bytes]:
    """Return the file, through gzip if it is compressed."""
    start = file.read(2)
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if start == GZIP_MAGIC else file


def segments(file: IO[bytes], tally: PacketTally) -> Iterator[TcpSegment]:
    """Yield every TCP segment, counting in `tally`. Raises NoCapture."""
    start = file.read(4)
    for packet in (
        _pcapng_packets(file, start, tally)
        if start == PCAPNG_MAGIC
        else _pcap_packets(file, start, tally)
    ):
        tally.packets += 1
        tally.read_bytes += len(packet.content) + 16
        segment = _segment(packet, tally)
        if segment is not None:
            tally.segments += 1
            yield segment


def _pcap_packets(file: IO[bytes], start: bytes, tally: PacketTally) -> Iterator[_Packet]:
    if start not in PCAP_MAGICS:
        raise NoCapture("neither pcap nor pcapng")
    order = "<" if start[0] != 0xA1 else ">"
    unit_ns = 1 if NANOSECOND_MARK in (start[2], start[1]) else 1000
    head = file.read(20)
    if len(head) < 20:
        raise NoCapture("the capture ends in its header")
    link = Struct(order + "I").unpack_from(head, 16)[0] & 0xFFFF
    packet_head = Struct(
        order + ("IIII" if MODIFIED_MARK not in (start[2], start[1]) else "IIII8x")
    )
    while head := file.read(packet_head.size):
        if len(head) < packet_head.size:
            tally.ends_early = True
            return
        seconds, fraction, captured, _ = packet_head.unpack(head)
        if captured > BLOCK_BYTES_MAX:
            raise NoCapture(f"a packet of {captured} bytes")
        content = file.read(captured)
        if len(content) < captured:
            tally.ends_early = True
            return
        yield _Packet(seconds * NANOSECONDS + fraction * unit_ns, link, content)


def _pcapng_packets(file: IO[bytes], start: bytes, tally: PacketTally) -> Iterator[_Packet]:
    yield from _PcapngBlocks(file, start, tally).packets()


@dataclass(frozen=True, slots=True)
class _Interface:
    link: int
    ticks_per_second: int
    offset_seconds: int
    snap_bytes: int


class _PcapngBlocks:
    """The blocks of a pcapng file; each section has its own byte order and interfaces."""

    def __init__(self, file: IO[bytes], start: bytes, tally: PacketTally) -> None:
        self._file = file
        self._start = start
        self._tally = tally
        self._order = ">"
        self._interfaces: list[_Interface] = []

    def packets(self) -> Iterator[_Packet]:
        """Yield every packet; an incomplete last block is left out."""
        while head := self._read(8):
            if len(head) < 8:
                self._tally.ends_early = True
                return
            if head[:4] == PCAPNG_MAGIC:
                head += self._begin_section()
                kind = SECTION
            else:
                kind = self._number(head, 0)
            length = self._number(head, 4)
            if not 12 <= length <= BLOCK_BYTES_MAX or length % 4:
                raise NoCapture(f"a block of {length} bytes")
            body = head[8:] + self._read(length - len(head))
            if len(body) < length - 8:
                self._tally.ends_early = True
                return
            packet = self._block(kind, body[:-4])
            if packet is not None:
                yield packet

    def _begin_section(self) -> bytes:
        magic = self._read(4)
        self._order = "<" if magic == bytes.fromhex("4d3c2b1a") else ">"
        if self._number(magic, 0) != 0x1A2B3C4D:
            raise NoCapture("a section that begins with no byte order")
        self._interfaces = []
        return magic

    def _block(self, kind: int, body: bytes) -> _Packet | None:
        try:
            if kind == INTERFACE:
                self._interfaces.append(self._interface(body))
            elif kind == ENHANCED:
                number, high, low, captured = Struct(self._order + "IIII").unpack_from(body)
                interface = self._interfaces[number]
                ticks = (high << 32) | low
                time_ns = (
                    ticks * NANOSECONDS // interface.ticks_per_second
                    + interface.offset_seconds * NANOSECONDS
                )
                return _Packet(time_ns, interface.link, body[20 : 20 + captured])
            elif kind == SIMPLE:
                interface = self._interfaces[0]
                size = min(self._number(body, 0), interface.snap_bytes or BLOCK_BYTES_MAX)
                return _Packet(0, interface.link, body[4 : 4 + size])
        except (IndexError, ValueError) as failure:
            raise NoCapture(f"a block of kind {kind}: {failure}") from failure
        return None

    def _interface(self, body: bytes) -> _Interface:
        link, _, snap_bytes = Struct(self._order + "HHI").unpack_from(body)
        ticks, offset = 1_000_000, 0
        position = 8
        while position + 4 <= len(body):
            code, size = Struct(self._order + "HH").unpack_from(body, position)
            content = body[position + 4 : position + 4 + size]
            if code == OPTION_RESOLUTION and content:
                ticks = 2 ** (content[0] & 0x7F) if content[0] & 0x80 else 10 ** content[0]
            elif code == OPTION_OFFSET and size == 8:
                offset = Struct(self._order + "q").unpack(content)[0]
            position += 4 + (size + 3) // 4 * 4
        return _Interface(link, ticks, offset, snap_bytes)

    def _number(self, content: bytes, position: int) -> int:
        number: int = Struct(self._order + "I").unpack_from(content, position)[0]
        return number

    def _read(self, size: int) -> bytes:
        start, self._start = self._start, b""
        return start + self._file.read(size - len(start))


def _raw_ip(content: bytes) -> dpkt.Packet:
    return dpkt.ip6.IP6(content) if content[:1] and content[0] >> 4 == 6 else dpkt.ip.IP(content)


LINKS: Final[dict[int, Callable[[bytes], dpkt.Packet]]] = {
    0: dpkt.loopback.Loopback,
    108: dpkt.loopback.Loopback,
    1: dpkt.ethernet.Ethernet,
    12: _raw_ip,
    14: _raw_ip,
    101: _raw_ip,
    228: _raw_ip,
    229: _raw_ip,
    113: dpkt.sll.SLL,
    276: dpkt.sll2.SLL2,
}
"""The link-layer header of a packet, by its link type."""


def _segment(packet: _Packet, tally: PacketTally) -> TcpSegment | None:
    """Return the TCP segment in a packet, None if there is none."""
    link = LINKS.get(packet.link)
    if link is None:
        tally.unknown_links += 1
        return None
    try:
        layer = link(packet.content)
    except (dpkt.Error, IndexError, ValueError):
        return None
    while not isinstance(layer, dpkt.ip.IP | dpkt.ip6.IP6):
        layer = getattr(layer, "data", None)
        if not isinstance(layer, dpkt.Packet):
            return None
    tcp = layer.data
    if isinstance(layer, dpkt.ip.IP) and (layer.mf or layer.offset):
        tally.fragments += layer.p == dpkt.ip.IP_PROTO_TCP
        return None
    if not isinstance(tcp, dpkt.tcp.TCP):
        return None
    return TcpSegment(
        number=tally.packets,
        time_ns=packet.time_ns,
        source=PacketEndpoint(layer.src, tcp.sport),
        target=PacketEndpoint(layer.dst, tcp.dport),
        sequence=tcp.seq,
        acknowledged=tcp.ack if tcp.flags & dpkt.tcp.TH_ACK else None,
        flags=tcp.flags,
        payload=bytes(tcp.data),
        lost_bytes=_lost_bytes(layer, tcp),
    )


def _lost_bytes(layer: "dpkt.ip.IP | dpkt.ip6.IP6", tcp: "dpkt.tcp.TCP") -> int:
    """Return how many bytes the packet had on the wire beyond the snapshot length."""
    if isinstance(layer, dpkt.ip.IP):
        announced = (
            layer.len - layer.hl * 4 if layer.len else 0
        )  # 0: segmentation offload: the network card splits the segment later
    else:
        announced = (
            layer.plen
            - sum(header.length for header in layer.extension_hdrs.values() if header is not None)
            if layer.plen
            else 0
        )
    return max(0, int(announced) - int(tcp.off) * 4 - len(tcp.data))
