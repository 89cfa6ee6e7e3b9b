"""Rules of the workload clients, pure: what a producer sends next and with which sequence, what a reader fetches next."""
