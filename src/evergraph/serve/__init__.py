"""A server for a saved state: it answers questions all day, and learns what it is told meanwhile.

Needs the extra ``serve``; only ``client.py`` does not, and nothing but the command imports the
rest.
"""
