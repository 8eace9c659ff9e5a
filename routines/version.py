"""The version, without asking the installed distribution: that would cost every start."""

VERSION = "1.0.0"
