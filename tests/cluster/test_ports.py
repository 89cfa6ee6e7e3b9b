"""Ports for clusters: free when they are found, and reserved until the cluster that gets them
listens there.
"""

import socket
import subprocess
import sys

import pytest

from kraftsim.cluster import ports
from kraftsim.cluster.ports import REGION_PORTS, free_port_range
from kraftsim.cluster.spec import SpecError

ASK = (
    "from kraftsim.cluster.ports import free_port_range; print([free_port_range(3) for _ in "
    "range(5)]); input()"
)


def region(port: int) -> int:
    return port // REGION_PORTS


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_processes_search_separate_port_ranges() -> None:
    """A port found by one process and not yet in use is not returned to another."""
    own = region(free_port_range(3))
    others = [
        subprocess.Popen(
            [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    regions = [
        {region(int(port)) for port in line_of(other).strip("[]\n").split(",")} for other in others
    ]
    for other in others:
        other.communicate("\n", timeout=60)
    assert all(len(found) == 1 for found in regions), regions
    assert len({own, *set.union(*regions)}) == 4, (own, regions)


def test_recently_used_ports_are_tried_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that has just got its ports may not listen yet."""
    monkeypatch.setattr(ports, "_regions", ports._Regions())
    found = [free_port_range(3) for _ in range(20)]
    taken = [first + step for first in found for step in range(3)]
    assert len(set(taken)) == len(taken) and len({region(first) for first in found}) == 1


def test_a_port_in_use_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_regions", ports._Regions())
    first = free_port_range(1)
    with socket.create_server(("127.0.0.1", first + 1)):
        assert free_port_range(1) == first + 2


def test_an_error_is_reported_when_all_port_ranges_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ports below those of other tests, which may run concurrently."""
    monkeypatch.setattr(ports, "FIRST_PORT", ports.FIRST_PORT - 2 * REGION_PORTS)
    monkeypatch.setattr(ports, "LAST_PORT", ports.FIRST_PORT + REGION_PORTS)
    other = ports._Regions()
    assert next(other.first_ports(3)) // REGION_PORTS == ports.FIRST_PORT // REGION_PORTS
    monkeypatch.setattr(ports, "_regions", ports._Regions())
    with pytest.raises(SpecError, match="no 3 neighbouring free ports were found"):
        free_port_range(3)
