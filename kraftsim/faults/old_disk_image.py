"""A backup of a host's disk is put back: the next incarnation finds everything as it was at a moment some time ago.

Nothing in an old image says that it is old. What the host acknowledged since is gone, its votes among it.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Copy the disk now; later kill the process and let the next one find the copy. It bites if anything has changed since."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    image = host.platter.after_kill()

    def put_back() -> None:
        if strike.is_over:
            return
        was_alive = host.is_alive
        simulation.kill(host)
        before = host.platter.content()
        host.platter.put(image)
        changed = sum(before.get(path) != content for path, content in image.content().items()) + len(before.keys() - image.names.keys())
        if changed:
            strike.bite(f"{changed} files are as they were {strike.integer('age_ms')} ms ago")
        if was_alive:
            strike.start_later(host, strike.integer("after_ms"))

    strike.after(strike.integer("age_ms"), put_back)


FAULT = FaultKind(
    name="old-disk-image",
    title="a backup of a disk that is put back",
    family=Family.DISK,
    strike=strike,
    params={"age_ms": 2000, "after_ms": 200},
    draws={"age_ms": Between(100, 4000), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
