"""Which checks of the Lua transitions has no test: change one, and see whether a test notices.

`mutants`: the changes, found in the text of `lua/`. `plugin`: a pytest plugin that collects once and then forks: one
child notes which tests evaluate which condition, one child for each change runs just those, on fakeredis.
`accepted.txt`: changes that no test needs to notice, each with its reason; they are left out.
"""
