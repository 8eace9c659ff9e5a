"""How an agent is driven: one turn in, one answer out."""
