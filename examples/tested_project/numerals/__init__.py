"""Writes Roman numerals, letter by letter."""
