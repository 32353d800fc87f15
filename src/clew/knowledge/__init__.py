"""The folklore as data: causes, tests and their likelihoods, symptom tables, claims with their sources."""

from clew.knowledge.base import load
from clew.knowledge.model import Cause, Claim, Knowledge, Test

__all__ = ["Cause", "Claim", "Knowledge", "Test", "load"]
