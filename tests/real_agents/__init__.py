"""Agent programs as they are released, driven by `routines` against a stand-in for their models.

`python -m tests.real_agents [NAME...]` installs nothing: it looks for the programs, points each at
the stand-in with a home of its own, writes a workspace whose agent is the preset, and shows with
real commands and processes what holds. docs/agents/last-run.md is its last whole result.
"""
