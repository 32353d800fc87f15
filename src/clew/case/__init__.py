"""The debugging loop: what was seen, what it makes likely, and what to look at next."""
