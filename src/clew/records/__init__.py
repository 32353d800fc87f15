"""The records that every part exchanges: what was seen, where, and in which case."""

from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place
from clew.records.trace import Event, HeldTrace, Series, Trace

__all__ = ["Clue", "Event", "HeldTrace", "Place", "Reading", "Series", "Trace", "Unclear"]
