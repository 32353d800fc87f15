"""Active experiments on a training step: what if the inputs were noise, or the batch were learned by heart?

An exam works on copies, restores every random state, and answers one test of the knowledge base. The subject is given
(`Subject(model, loss, batches)`) or was captured from a run. Importing this package imports no torch; its parts do.
"""
