"""The casebook: known faults put into known-good training programs, and what clew says about each."""
