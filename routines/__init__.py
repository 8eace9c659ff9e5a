"""Cron for AI agents: prompts on a schedule, in a conversation that lasts."""
