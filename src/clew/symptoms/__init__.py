"""Reads curves and logs that somebody or something kept, and says what they look like.

Nothing here runs the training or imports torch: a curve is a list of steps and a list of numbers. The readers return
numbers for the scales of the knowledge base, or an outcome where a test has no scale, or the reason why the curve is
too short or too noisy to say.
"""
