"""One file, one rule: what it sees, why it matters, when it keeps silent, and how to fix it."""
