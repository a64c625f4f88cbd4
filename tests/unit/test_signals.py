"""When a stop signal counts."""

import os
import signal

from workron.runtime.signals import StopSignals, happens


async def test_a_signal_counts_before_the_event_loop_gets_to_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        assert not signals.told
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.told
        assert not signals.stopping.is_set()
        assert await happens(signals.stopping, within_s=5)
        assert not signals.now.is_set()
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_stop_signal_that_the_parent_has_blocked_stops_nevertheless() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await happens(signals.stopping, within_s=10)
    finally:
        usual = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it discards a signal that is still blocked
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGTERM, usual)
