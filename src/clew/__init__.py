"""clew finds out why training code that runs does not learn."""

__version__ = "0.1.0"
