"""One function for each thing that a person, a program or an agent can ask."""
