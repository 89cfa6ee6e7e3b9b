"""The records of the metadata log, by subject; `registry` frames and finds them."""
