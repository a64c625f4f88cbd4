"""Schedules: jobs and workflows that start again and again, at the times of a cron expression. No I/O.

times.py    the times of an expression, also when clocks change
words.py    the same as text
models.py   schedules and their runs
plan.py     what to do now: start, wait, or skip missed occurrences

`workron/store/schedule_book.py` stores schedules, `workron/store/occurrence.py` submits an occurrence, and
`reaper/firing.py` starts what is due.
"""
