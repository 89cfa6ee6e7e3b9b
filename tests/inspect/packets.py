"""Writes captures: a conversation as TCP segments, which a test may reorder or drop, with every
supported link layer.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

ETHERNET, RAW_IP, NULL, LOOP, COOKED, COOKED2 = 1, 101, 0, 108, 113, 276
SEGMENT_BYTES = 1400
FIN, SYN, PUSH, ACK = 0x01, 0x02, 0x08, 0x10
FIRST_SECOND = 1_700_000_000
CLIENT_PORT, NODE_PORT = 50_000, 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A TCP segment between a client and a node; only `kept_bytes` of its payload are in the
    capture.
    """

    from_client: bool
    sequence: int
    acknowledged: int
    payload: bytes = b""
    flags: int = ACK | PUSH
    kept_bytes: int | None = None
    client_port: int = CLIENT_PORT


@dataclass(slots=True)
class Conversation:
    """A connection with sequential messages.

    Sequence numbers can start near their maximum, so that they wrap.
    """

    first_sequence: int = 1000
    client_port: int = CLIENT_PORT
    segment_bytes: int = SEGMENT_BYTES
    packets: list[Packet] = field(default_factory=list)
    _sent: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def open(self) -> "Conversation":
        """Do the TCP handshake."""
        self._add(True, b"", SYN, 0)
        self._add(False, b"", SYN | ACK, 0)
        self._sent = {True: 1, False: 1}
        self._add(True, b"", ACK, 0)
        return self

    def send(self, data: bytes, *, from_client: bool) -> "Conversation":
        """Send bytes, in segments that do not align with frames."""
        for start in range(0, len(data), self.segment_bytes):
            piece = data[start : start + self.segment_bytes]
            self._add(from_client, piece, ACK | PUSH, len(piece))
        return self

    def _add(self, from_client: bool, payload: bytes, flags: int, advance: int) -> None:
        numbers = {side: (self.first_sequence + sent) % 2**32 for side, sent in self._sent.items()}
        acknowledged = numbers[not from_client] if flags & ACK else 0
        packet = Packet(
            from_client=from_client,
            sequence=numbers[from_client],
            acknowledged=acknowledged,
            payload=payload,
            flags=flags,
            client_port=self.client_port,
        )
        self.packets.append(packet)
        self._sent[from_client] += advance


def pcap(
    packets: Iterable[Packet],
    *,
    link: int = RAW_IP,
    version: int = 4,
    nanoseconds: bool = False,
    order: str = "<",
) -> bytes:
    """Return a capture file."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    pieces = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, link)]
    for number, packet in enumerate(packets):
        content, size = framed(packet, link, version)
        pieces.append(
            struct.pack(order + "IIII", FIRST_SECOND, number, len(content), size) + content
        )
    return b"".join(pieces)


def pcapng(packets: Iterable[tuple[int, Packet]], links: list[int], *, order: str = "<") -> bytes:
    """Return a capture of several interfaces; each packet has the number of its interface.

    Every other interface has nanosecond timestamps.
    """
    pieces = [_block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)]
    for number, link in enumerate(links):
        options = struct.pack(order + "HHB3xHH", 9, 1, 9, 0, 0) if number % 2 else b""
        pieces.append(_block(1, struct.pack(order + "HHI", link, 0, 0) + options, order))
    for number, (interface, packet) in enumerate(packets):
        content, size = framed(packet, links[interface], 4)
        ticks = (FIRST_SECOND * 1_000_000 + number) * (1000 if interface % 2 else 1)
        head = struct.pack(
            order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(content), size
        )
        pieces.append(_block(6, head + content + bytes(-len(content) % 4), order))
        pieces.append(_block(5, struct.pack(order + "III", interface, 0, 0), order))
    return b"".join(pieces)


def framed(packet: Packet, link: int, version: int) -> tuple[bytes, int]:
    """Return the captured bytes of a packet, and its size on the wire."""
    ports = (
        (packet.client_port, NODE_PORT) if packet.from_client else (NODE_PORT, packet.client_port)
    )
    tcp = struct.pack(
        ">HHIIBBHHH",
        *ports,
        packet.sequence,
        packet.acknowledged,
        5 << 4,
        packet.flags,
        65535,
        0,
        0,
    )
    hosts = ("127.0.0.1", "127.0.0.2") if version == 4 else ("::1", "fe80::2")
    source, target = (
        ip_address(host).packed for host in (hosts if packet.from_client else hosts[::-1])
    )
    size = len(tcp) + len(packet.payload)
    if version == 4:
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + size, 7, 0, 64, 6, 0, source, target)
    else:
        ip = struct.pack(">IHBB16s16s", 6 << 28, size, 6, 64, source, target)
    ethertype = 0x0800 if version == 4 else 0x86DD
    before = {
        RAW_IP: b"",
        ETHERNET: bytes(12) + struct.pack(">H", ethertype),
        NULL: struct.pack("<I", 2 if version == 4 else 30),
        LOOP: struct.pack(">I", 2 if version == 4 else 30),
        COOKED: struct.pack(">HHH8sH", 0, 772, 6, bytes(8), ethertype),
        COOKED2: struct.pack(">HHiHBB8s", ethertype, 0, 1, 772, 0, 6, bytes(8)),
    }[link]
    whole = before + ip + tcp + packet.payload
    lost = 0 if packet.kept_bytes is None else len(packet.payload) - packet.kept_bytes
    return whole[: len(whole) - lost], len(whole)


def cut(packet: Packet, kept_bytes: int) -> Packet:
    """Return the packet as a capture with a short snapshot length keeps it."""
    return replace(packet, kept_bytes=min(kept_bytes, len(packet.payload)))


def _block(kind: int, body: bytes, order: str) -> bytes:
    size = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + size + body + size
