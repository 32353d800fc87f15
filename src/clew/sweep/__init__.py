"""Sweeps: what is planned, run, collected, and what may be concluded from it. Needs numpy, never torch."""
