"""One file a command: parses what was typed, delegates, prints. :mod:`sim.cli` mounts its ``command``."""
