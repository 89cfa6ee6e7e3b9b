"""The rules of the workload clients, without I/O: what a producer sends next and with which
sequence, what a consumer fetches next.
"""
