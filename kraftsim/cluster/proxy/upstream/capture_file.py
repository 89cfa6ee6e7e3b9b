"""What clients send and get as a packet capture: `kraftsim decode`, Wireshark and tshark read it.

The packets are made up: a pcap file of raw IP with a TCP segment for each piece of bytes, between
the client and the port of the proxy to which it connected. They are those behind TLS, in plain
text. Checksums are 0, as with a network card that fills them in.
Source: draft-ietf-opsawg-pcap; RFC 791, RFC 8200, RFC 9293.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from struct import Struct
from typing import Final

FILE_HEAD: Final = Struct("<IHHiIII")
NANOSECOND_MAGIC: Final = 0xA1B23C4D
RAW_IP: Final = 101
SNAP_BYTES: Final = 1 << 18
PACKET_HEAD: Final = Struct("<IIII")
IPV4: Final = Struct(">BBHHHBBH4s4s")
IPV6: Final = Struct(">IHBB16s16s")
TCP: Final = Struct(">HHIIBBHHH")
FIN, SYN, PUSH, ACK = 0x01, 0x02, 0x08, 0x10
TCP_NUMBER: Final = 6
HOPS: Final = 64
DONT_FRAGMENT: Final = 0x4000
WINDOW: Final = 0xFFFF
PAYLOAD_BYTES_MAX: Final = 65_000
NANOSECONDS: Final = 1_000_000_000
SEQUENCES: Final = 1 << 32
IpAddress = IPv4Address | IPv6Address


class CapturedConnection:
    """One connection: the addresses of its ends, and how far their sequence numbers are. The client
    is end 0, the proxy end 1.
    """

    def __init__(self, client: tuple[str, int], proxy: tuple[str, int]) -> None:
        self._addresses = (ip_address(client[0]), ip_address(proxy[0]))
        self._ports = (client[1], proxy[1])
        self._next = [1, 1]

    def packet(self, sender: int, payload: bytes, flags: int) -> bytes:
        """Return the next packet of an end."""
        receiver = 1 - sender
        tcp = TCP.pack(
            self._ports[sender],
            self._ports[receiver],
            self._next[sender] % SEQUENCES,
            self._next[receiver] % SEQUENCES if flags & ACK else 0,
            TCP.size // 4 << 4,
            flags,
            WINDOW,
            0,
            0,
        )
        self._next[sender] += len(payload) + bool(flags & (SYN | FIN))
        return self._ip_head(sender, len(tcp) + len(payload)) + tcp + payload

    def _ip_head(self, sender: int, size: int) -> bytes:
        source, target = self._addresses[sender], self._addresses[1 - sender]
        if isinstance(source, IPv6Address):
            return IPV6.pack(6 << 28, size, TCP_NUMBER, HOPS, source.packed, target.packed)
        whole = IPV4.size + size
        marks = (0x45, 0, whole, 0, DONT_FRAGMENT, HOPS, TCP_NUMBER, 0)
        return IPV4.pack(*marks, source.packed, target.packed)


class CaptureFile:
    """A capture that is being written; times are those of the wall clock, in ns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(FILE_HEAD.pack(NANOSECOND_MAGIC, 2, 4, 0, 0, SNAP_BYTES, RAW_IP))
        self._connections: dict[int, CapturedConnection] = {}

    def opened(
        self, number: int, client: tuple[str, int], proxy: tuple[str, int], time_ns: int
    ) -> None:
        """A connection begins."""
        connection = self._connections[number] = CapturedConnection(client, proxy)
        self._add(connection.packet(0, b"", SYN), time_ns)
        self._add(connection.packet(1, b"", SYN | ACK), time_ns)

    def passed(self, number: int, data: bytes, time_ns: int, *, is_response: bool) -> None:
        """Bytes were sent by a client, or reached it."""
        connection = self._connections[number]
        for position in range(0, len(data), PAYLOAD_BYTES_MAX):
            payload = data[position : position + PAYLOAD_BYTES_MAX]
            self._add(connection.packet(int(is_response), payload, PUSH | ACK), time_ns)

    def closed(self, number: int, time_ns: int) -> None:
        """A connection has ended."""
        connection = self._connections.pop(number)
        for end in (0, 1):
            self._add(connection.packet(end, b"", FIN | ACK), time_ns)

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _add(self, packet: bytes, time_ns: int) -> None:
        seconds, rest = divmod(time_ns, NANOSECONDS)
        self._file.write(PACKET_HEAD.pack(seconds, rest, len(packet), len(packet)) + packet)
