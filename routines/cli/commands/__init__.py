"""One file for each command or group; each is imported only when it is called."""
