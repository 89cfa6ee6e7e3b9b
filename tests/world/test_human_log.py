"""The log for humans: one line per message, with the node's own time."""

import io

from kraftsim.world.human_log import set_up_human_log
from tests.world.conftest import OpenWorld


def test_line_names_node_time_and_level(open_world: OpenWorld) -> None:
    stream = io.StringIO()
    log = set_up_human_log(
        open_world().clock, node="broker-1", incarnation=3, level="info", stream=stream
    )
    log.debug("not shown")
    log.info("listening", port=9092)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.startswith("t=") and line.endswith(
        " level=info node=broker-1 incarnation=3 event=listening port=9092\n"
    )
