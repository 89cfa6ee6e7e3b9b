"""A single writer at a steady rate, for scenarios about something else, so that there are records
that could be lost.
"""

from kraftsim.cluster.scenario import LivenessLost, ScenarioEnvironment
from kraftsim.lab.workloads.phases import CALLS_SECONDS


async def write_lines(
    stage: ScenarioEnvironment, topic: str, partitions: int, count: int, *, pause_seconds: float
) -> None:
    """Write so many records, round-robin over the partitions, with a pause after each.

    Raises LivenessLost if some are not acknowledged in time.
    """
    writer = stage.producer("writer-1")
    await writer.start()
    for index in range(count):
        await writer.send(topic, index % partitions, str(index), f"line {index}".encode())
        await stage.sleep(pause_seconds)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise LivenessLost(
            f"the writer has {left} unacknowledged records {CALLS_SECONDS:g} s after it sent the "
            "last one"
        )
