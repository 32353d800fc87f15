"""One file per test that is answered by observing: the folder is the catalogue."""
