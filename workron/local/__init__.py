"""`workron up`: the processes of one machine, with a server of their own."""
