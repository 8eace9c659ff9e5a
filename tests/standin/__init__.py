"""A stand-in for a model's server, on the loop-back address, for runs of real agent programs."""
