"""What a producer per task costs beside a producer per thread: counted, weighed, and drawn."""
