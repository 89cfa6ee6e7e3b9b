"""Starts and stops the proxy's process, and holds its control port."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.control_messages import Post, ProxyPlan, ProxyState
from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.world.real.world import RealClock

PROXY = "proxy"
"""Name of its log."""
READY_MS = 10_000
STOP_SECONDS = 5.0
POLL_SECONDS = 0.005


class ProxyFailed(RuntimeError):
    """The proxy did not start; one line with the reason."""


def proxy_plan(
    spec: ClusterSpec, *, follows_frames: bool, judges_requests: bool = False
) -> ProxyPlan:
    """Return the configuration of the proxy of a cluster."""
    posts = tuple(
        Post(
            name=node.name,
            node_id=node.node_id,
            host=node.host,
            port=port,
            behind_host=node.listens_host,
            behind_port=behind_port,
            outgoing_host=node.outgoing_host,
            speaks_kafka=node.role is not Role.ZOOKEEPER,
        )
        for node in spec.nodes()
        for port, behind_port in (
            (node.port, node.listens_port),
            (node.controller_port, node.controller_listens_port),
        )
        if port
    )
    return ProxyPlan(
        posts=posts,
        seed=spec.seed,
        follows_frames=follows_frames,
        judges_requests=judges_requests,
    )


class ProxyProcess:
    """The proxy of one cluster.

    It ends with its parent, however that ends: its standard input is a pipe from it.
    """

    def __init__(self, plan: ProxyPlan, directory: RunDirectory) -> None:
        self._plan = plan
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.door, self.secret = 0, ""
        """Its control port, on loopback."""

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of a proxy that runs."""
        assert self._process is not None, "the proxy does not run"
        return self._process.pid

    async def start(self) -> None:
        """Start it and return when it listens for every node: nodes may connect at once.

        Raises ProxyFailed.
        """
        self._launch()
        clock = RealClock(0)
        give_up_at_ms = clock.monotonic_ms() + READY_MS
        while not self._state_file.exists():
            if not self.is_running or clock.monotonic_ms() > give_up_at_ms:
                self.stop()
                output = (
                    self._directory.human_log(PROXY)
                    .read_text(errors="replace")
                    .strip()
                    .splitlines()
                )
                raise ProxyFailed(output[-1] if output else "the proxy did not start")
            await asyncio.sleep(POLL_SECONDS)
        state = msgspec.json.decode(self._state_file.read_bytes(), type=ProxyState)
        self.door, self.secret = state.door, state.secret

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None, "it was started with a pipe"
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()

    @property
    def _state_file(self) -> Path:
        return self._directory.root / "proxy.json"

    def _launch(self) -> None:
        plan_file = self._directory.root / "config" / "proxy.json"
        plan_file.write_bytes(msgspec.json.encode(self._plan))
        self._state_file.unlink(missing_ok=True)
        with open(self._directory.human_log(PROXY), "wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "kraftsim.cluster.proxy",
                    str(plan_file),
                    str(self._state_file),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
