"""Schedules, policies and guardrails: values in, values out.

Nothing here reads a clock or a file, logs, or draws a random number.
"""
