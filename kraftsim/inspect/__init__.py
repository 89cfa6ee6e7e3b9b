"""Bytes of Kafka shown to people: frames, conversations in packet captures, and the files of a log directory.

It only looks: nothing here serves a node. `kraftsim decode` and `kraftsim dump` print what this room finds.
"""
