"""The command line. Its modules import nothing slow at the top: `workron --help` takes less than 0.2 s."""
