"""What clients recorded about a cluster: their own files, and packet captures."""
