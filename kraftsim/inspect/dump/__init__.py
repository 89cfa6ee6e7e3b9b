"""The files of a log directory, line by line as Kafka's DumpLogSegments prints them, and the small
files that it does not read.
"""
