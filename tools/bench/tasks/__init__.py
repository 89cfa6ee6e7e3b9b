"""The cost of a producer per task compared with a producer per thread: counts, memory, and a
plot.
"""
