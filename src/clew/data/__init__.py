"""A look into the data files that a run has read: what an engineer would do by hand once the curves look odd."""
