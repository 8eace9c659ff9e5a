"""Numbers and health of a scheduler over HTTP: a surface, like the command line.

Needs the extra `server`; nothing of it is imported before it is asked for (`opening.py`).
"""
