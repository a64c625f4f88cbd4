"""The key that the tests of the API use, and the API on a real socket."""

import asyncio
from dataclasses import dataclass

import httpx2

from workron.signals import StopSignals

KEY = "a-key-for-tests-only"
AUTHORIZATION = {"authorization": f"Bearer {KEY}"}


@dataclass
class Live:
    """A running server; `signals.stop()` is what a first SIGTERM does."""

    port: int
    client: httpx2.AsyncClient
    signals: StopSignals
    serving: "asyncio.Task[None]"
