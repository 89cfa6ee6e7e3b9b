"""Historical bugs of Apache Kafka, one file for each concern: replacement parts that re-enable the
bug, and the invariants that find it.
"""
