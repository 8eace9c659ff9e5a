"""The clock and the turns: what is due is claimed, run and settled."""
