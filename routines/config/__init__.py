"""YAML to routines: what the files of a workspace say, or everything that is wrong with them.

Nothing here writes a file. Texts for new files are returned, and written by the store.
"""
