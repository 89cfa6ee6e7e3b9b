"""A cluster of one broker in one process, as it is, or with every frame copied as before zero-copy
frames.

python -m tools.bench.copies_server [--copying]     prints the address of the broker, ends with its
standard input
"""

import argparse
import sys

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.partitions import log_reading
from kraftsim.server import inbox
from kraftsim.server.connection import ServerConnection
from kraftsim.server.dispatch import Dispatcher
from kraftsim.world.real.runner import manage_freed_memory

NEVER = 1 << 62


def copy_every_frame(
    dispatcher: Dispatcher[object],
    connection: ServerConnection,
    buffer: inbox.Buffer,
    position: int,
    end: int,
) -> int:
    """Process no frame in place: copy each out of the read buffer, like unusual frames."""
    return position


def main() -> int:
    """Serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copying", action="store_true")
    settings = {}
    if parser.parse_args().copying:
        # method-assign,assignment: the variant that is measured
        Dispatcher.serve_run = copy_every_frame  # type: ignore[method-assign,assignment]
        settings["kraftsim.large.frame.bytes"] = str(
            2**31 - 1
        )  # frames are joined from their parts
        log_reading.SLICE_BYTES_MIN = NEVER  # what is fetched is read, and written by the transport
    manage_freed_memory()
    with EmbeddedCluster(
        ClusterSpec(brokers=1, port=free_port_range(1), settings=settings)
    ) as cluster:
        print(cluster.bootstrap, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
