"""The command line. Modules here import nothing slow at the top: `workron --help` answers in under 0.2 s."""
