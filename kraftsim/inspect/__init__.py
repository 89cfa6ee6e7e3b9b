"""Human-readable views of Kafka bytes: frames, conversations in packet captures, and the files of a
log directory.

This package only reads: no node uses it. `kraftsim decode` and `kraftsim dump` print its results.
"""
