"""Judges the log directories of Kafka brokers and controllers: what is wrong, where, since when.

`tables` declares what is read from disks, `scan` reads it, `checks` are the rules in SQL, and
`judging` asks them. Works on the disks of Apache Kafka and of kraftsim alike, and writes nothing to
them.
"""
