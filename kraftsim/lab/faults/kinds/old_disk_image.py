"""An old backup of a host's disk is restored: the next incarnation finds the data of a moment some
time ago.

Nothing marks an old image as old. Everything that the host acknowledged since is lost, its votes
included.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Copy the disk now; later kill the process and restart it with the copy.

    It is effective if anything has changed since.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    image = host.durable.after_kill()

    def put_back() -> None:
        if injection.is_over:
            return
        was_alive = host.is_alive
        simulation.kill(host)
        before = host.durable.content()
        host.durable.put(image)
        changed = sum(
            before.get(path) != content for path, content in image.content().items()
        ) + len(before.keys() - image.names.keys())
        if changed:
            injection.record_effect(
                f"{changed} files have the content of {injection.integer('age_ms')} ms ago"
            )
        if was_alive:
            injection.start_later(host, injection.integer("after_ms"))

    injection.after(injection.integer("age_ms"), put_back)


FAULT = FaultKind(
    name="old-disk-image",
    title="a restored old disk image",
    family=Family.DISK,
    inject=inject,
    params={"age_ms": 2000, "after_ms": 200},
    draws={"age_ms": Between(100, 4000), "after_ms": Between(20, 2000)},
    data_loss=DataLoss.FLUSHED,
)
