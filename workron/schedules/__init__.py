"""Schedules: jobs and workflows that are started again and again, at times that a cron expression names.

times.py    which moments an expression means, around changes of the clock too
words.py    the same for people
models.py   schedules and their runs
plan.py     what is to be done now: fire, wait, or pass over what was missed
book.py     put, read, list and delete them               Store.schedules, what the API calls
firing.py   start what is due, once                       what the reaper calls
"""
