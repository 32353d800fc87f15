"""One check of data files per module; the name of the module is the name of the test that it answers."""
