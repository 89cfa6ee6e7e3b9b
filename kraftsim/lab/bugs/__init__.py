"""Historical bugs of Apache Kafka, one file each: replacement parts that re-enable the bug, and the
invariants that find it.
"""
