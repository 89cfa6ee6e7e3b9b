"""The world of a node on a real machine: kernel clocks, files, sockets through uvloop."""

from kraftsim.world.real.world import RealWorld, real_world

__all__ = ["RealWorld", "real_world"]
