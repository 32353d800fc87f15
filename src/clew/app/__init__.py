"""One function per verb. The command line, the web pages and the agents' interface all come through here.

A module per noun, so that a surface imports only what its verb needs.
"""
