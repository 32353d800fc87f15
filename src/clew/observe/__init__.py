"""The zero-touch recorder: runs a script as it is, with instruments attached, and reads off what happened.

`launch` runs the script in a process of its own; `boot` gets clew into that process through its environment before its
first import; `hooks` patches what has to be seen; `recorder` hands every event to the watches; each file in `watches`
answers one test of the knowledge base.
"""
