"""The system: liveness, readiness and health."""

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth.callers import READ
from api.context import Context, context_of
from api.operations import Operations
from workron import __version__
from workron.amounts import counted
from workron.durations import to_seconds
from workron.errors import StoreFull, StoreUnavailable, is_outage
from workron.times import rfc3339

if TYPE_CHECKING:
    from workron.store.health import Health

router = Operations("system")

_PING_TIMEOUT_S: Final = 1.0
_LEAST_FREE: Final = 1024**3
_SILENT_REAPER_S: Final = 10.0
_ROLLBACK_SHOWN_S: Final = 24 * 3600.0


@router.operation("GET /livez", (), schemas.Alive)
async def livez() -> Response:
    """Return 200: this process is alive."""
    return schemas.json_response({"status": "ok"})


@router.operation("GET /readyz", (), schemas.Alive, problems.STORE_UNAVAILABLE, problems.STORE_FULL)
async def readyz(request: Request) -> Response:
    """Return whether submissions can be accepted: the store answers, and its disk has room."""
    context = context_of(request)
    _require_free_disk(context)
    try:
        await asyncio.wait_for(context.store.ping(), _PING_TIMEOUT_S)
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {_PING_TIMEOUT_S:g} s") from None
    return schemas.json_response({"status": "ok"})


@router.operation("GET /health", READ, schemas.Health)
async def health(request: Request) -> Response:
    """Return the health of the system, with warnings about all that endangers its guarantees."""
    context = context_of(request)
    return schemas.json_response(await _health_document(context))


async def _health_document(context: Context) -> dict[str, Any]:
    health = await context.store.health()
    server = health.server
    degraded = _stall_warnings(health) or _reaper_warnings(health.last_pass_age_ms, context.settings.reap_every)
    if isinstance(health.refusal, StoreFull):
        degraded.append(f"new jobs are refused: {health.refusal}")
    warnings = degraded + _damage_warnings(health)
    if server.appendonly is False:
        warnings.append(
            "the Redis server has no append-only file: jobs accepted since its last snapshot are lost if it crashes"
        )
    return {
        "status": "degraded" if degraded else "ok",
        "warnings": warnings,
        "instance": context.instance,
        "version": __version__,
        "uptime": round(time.monotonic() - context.started_s, 3),
        "server": {
            "product": server.product,
            "version": server.version,
            "appendonly": server.appendonly,
            "appendfsync": server.appendfsync,
            "maxmemory_policy": server.maxmemory_policy,
            "used_memory": server.used_memory,
            "maxmemory": server.maxmemory,
        },
        "reaper": {"last_pass_age": to_seconds(health.last_pass_age_ms)},
        "history": {
            "rollbacks": health.rollbacks,
            "rolled_back_at": None if health.rolled_back_at_ms is None else rfc3339(health.rolled_back_at_ms),
        },
        "quarantined": health.quarantined,
        "due": health.due,
        "running": health.running,
    }


def _stall_warnings(health: "Health") -> list[str]:
    """Return a warning if nothing can change at present: then the silence of a reaper is no fault of its own."""
    if is_outage(health.refusal):
        return [f"no job can be accepted, started or ended: {health.refusal}"]
    if health.rebuilding:
        return ["`workron doctor --rebuild` writes all indexes again: all other calls wait until it has ended"]
    return []


def _reaper_warnings(last_pass_age_ms: int | None, reap_every_s: float) -> list[str]:
    """Return a warning if no reaper recovers the jobs of lost workers."""
    if last_pass_age_ms is None:
        return ["no reaper has ever run: jobs of lost workers are not recovered; start `workron reaper`"]
    silent_s = to_seconds(last_pass_age_ms)
    if silent_s <= max(_SILENT_REAPER_S, 5 * reap_every_s):
        return []
    return [f"no reaper for {silent_s:.0f} s: jobs of lost workers are not recovered; start `workron reaper`"]


def _damage_warnings(health: "Health") -> list[str]:
    """Return warnings about lost or damaged data in Redis; a rollback is reported for a day."""
    warnings = []
    rolled_back_at_ms = health.rolled_back_at_ms
    if rolled_back_at_ms is not None and time.time() - to_seconds(rolled_back_at_ms) < _ROLLBACK_SHOWN_S:
        warnings.append(
            f"history was rolled back: at {rfc3339(rolled_back_at_ms)} Redis was found in an older state than before; "
            "jobs accepted shortly before that may be lost or run again; check with `workron doctor`"
        )
    if health.quarantined:
        warnings.append(f"keys of {counted(health.quarantined, 'job')} are damaged; see `workron doctor`")
    return warnings


def _require_free_disk(context: Context) -> None:
    """Raise StoreFull if the embedded server's disk is nearly full: the server exits once it can't write its log."""
    url = context.settings.redis
    if url is not None and not url.get_secret_value().startswith("unix:"):
        return
    data_dir = context.settings.data_dir
    if data_dir is None or not data_dir.exists():
        return
    disk = shutil.disk_usage(data_dir)
    if disk.free < min(disk.total // 10, _LEAST_FREE):
        raise StoreFull(f"only {disk.free // 1024**2:,} MiB are free on the store's disk")
