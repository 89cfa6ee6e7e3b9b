"""Historical bugs of Apache Kafka, one file each: replacement parts that put the bug back, and the invariant that finds it."""
