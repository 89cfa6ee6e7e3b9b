"""The methods of an event loop that would use the real machine: each raises an error with the call
site.
"""

import asyncio
from typing import NoReturn

from kraftsim.world.simulated.call_site import escape

FORBIDDEN = (
    "add_reader",
    "add_writer",
    "remove_reader",
    "remove_writer",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "sendfile",
    "start_tls",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "subprocess_exec",
    "subprocess_shell",
)


def forbid(loop: type[asyncio.BaseEventLoop]) -> None:
    """Replace the forbidden methods of a loop class by ones that raise SimulationEscape."""
    for name in FORBIDDEN:
        assert hasattr(loop, name), f"asyncio has no {name} any more"
        setattr(loop, name, _refusing(name))


def _refusing(name: str) -> object:
    def refuse(self: object, *args: object, **options: object) -> NoReturn:
        raise escape(f"loop.{name}")

    return refuse
