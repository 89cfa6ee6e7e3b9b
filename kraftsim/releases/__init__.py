"""Release profiles: what each Apache Kafka release line supports, one file per line, each as a
delta of the previous one.
"""
