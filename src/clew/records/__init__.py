"""The records that every part exchanges: what was seen, where, and in which case."""
