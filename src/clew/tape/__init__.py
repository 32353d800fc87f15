"""A training step as a tape: every torch call from the batch to the loss, kept as data.

The recorder writes it while a script runs; exams replay it with other parameters or inputs, without the script's own
classes. It is saved as JSON and safetensors, never as a pickle.
"""
