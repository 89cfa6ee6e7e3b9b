"""Manual faults, server side: the supervisor of a cluster carries out requests that arrive on this
control socket.

Only the process that started the nodes may take them down and start them again; a node that exits
unexpectedly ends the whole cluster. `kraftsim.cluster.cluster_operations` does the work.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from kraftsim.cluster.cluster_operations import ClusterOperations
from kraftsim.cluster.directories import is_same_secret
from kraftsim.cluster.manual_faults import (
    ALL_FAULTS,
    LOOPBACK,
    FaultDone,
    FaultRequest,
    NotPossible,
)
from kraftsim.lab.faults.request_fault_text import (
    BadRequestFault,
    parse_request_fault,
    request_fault_text,
)


class FaultControlServer:
    """Serves requests for one cluster that carry its secret."""

    def __init__(self, operations: ClusterOperations, secret: str) -> None:
        self._operations = operations
        self._secret = secret
        self._server: asyncio.Server | None = None
        self._verbs: dict[str, Callable[[FaultRequest], Awaitable[list[str]]]] = {
            "kill": self._kill,
            "restart": self._restart,
            "order": self._order,
            "pause": self._pause,
            "resume": self._resume,
            "cut": self._impose,
            "slow": self._impose,
            "heal": self._heal,
            "inject": self._inject,
            "faults": self._faults,
            "end-fault": self._end_fault,
        }

    async def open(self) -> int:
        """Listen on a free port; return it."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            order = msgspec.json.decode(await reader.readline(), type=FaultRequest)
            if not is_same_secret(order.secret, self._secret):
                return
            done = await self._carried_out(order)
            writer.write(msgspec.json.encode(done) + b"\n")
            await writer.drain()
        except (OSError, ValueError):  # ValueError: no valid request, or one without a line feed
            pass
        finally:
            writer.close()

    async def _carried_out(self, order: FaultRequest) -> FaultDone:
        try:
            verb = self._verbs.get(order.verb)
            if verb is None:
                raise NotPossible(f"unknown verb {order.verb}")
            return FaultDone(lines=tuple(await verb(order)))
        except NotPossible as error:
            return FaultDone(trouble=str(error))

    async def _kill(self, order: FaultRequest) -> list[str]:
        return [done.text for done in await self._operations.kill(order.targets)]

    async def _restart(self, order: FaultRequest) -> list[str]:
        done = await self._operations.restart(
            order.targets, order.settings, awaits_replicas=order.awaits_replicas
        )
        return [each.text for each in done]

    async def _order(self, order: FaultRequest) -> list[str]:
        return await self._operations.order()

    async def _pause(self, order: FaultRequest) -> list[str]:
        return [done.text for done in await self._operations.pause(order.targets)]

    async def _resume(self, order: FaultRequest) -> list[str]:
        done = await self._operations.resume(order.targets)
        return [each.text for each in done] or ["no node was paused"]

    async def _impose(self, order: FaultRequest) -> list[str]:
        if order.resets:
            effect = await self._operations.reset(order.targets)
            return [
                (
                    f"{effect.closed} connections reset, {effect.connections} of them with "
                    "something under way"
                )
            ]
        imposed = await self._operations.impose(order.targets, order.condition)
        how = "isolated" if order.condition.holds else "slowed"
        return [f"{each.target} {how} until `kraftsim heal`" for each in imposed]

    async def _heal(self, order: FaultRequest) -> list[str]:
        count = await self._operations.heal(order.targets)
        return [f"{count} {'fault' if count == 1 else 'faults'} of the network healed"]

    async def _inject(self, order: FaultRequest) -> list[str]:
        """Add faults of requests, each by its text."""
        self._operations.require_readable_requests()
        try:
            faults = [parse_request_fault(text) for text in order.targets]
        except BadRequestFault as wrong:
            raise NotPossible(str(wrong)) from wrong
        added = [await self._operations.inject(fault) for fault in faults]
        return [f"fault {each.number}: {request_fault_text(each.fault)}" for each in added]

    async def _faults(self, order: FaultRequest) -> list[str]:
        """Return the faults of requests, each a RequestFaultStatus as JSON."""
        statuses = await self._operations.request_faults()
        return [msgspec.json.encode(each).decode() for each in statuses]

    async def _end_fault(self, order: FaultRequest) -> list[str]:
        """End faults of requests by their numbers, or all."""
        if order.targets == (ALL_FAULTS,):
            ended = await self._operations.end_faults()
            lines = [f"fault {number} ended" for number in ended]
            return lines or ["there was no fault of requests to end"]
        numbers = [await self._operations.fault_number(target) for target in order.targets]
        done = [await self._operations.end_fault(number) for number in numbers]
        return [
            f"fault {status.number} {'ended' if was_running else 'had ended already'}"
            for status, was_running in done
        ]
