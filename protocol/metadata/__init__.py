"""The records of the metadata log, one file per record type; `registry` frames and finds them."""
