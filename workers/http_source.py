"""Jobs from the API over HTTP, for machines without access to Redis. Needs no Redis client.

A claim request without a result becomes a long poll. While it is open, results are sent without a claim: the poll has
the request. It has the same request id as the previous call, so whichever response is lost, the next call with that
id returns the claims.
"""

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, Self
from urllib.parse import quote, urlencode

import httpx2
import orjson

from workron.client.connection import is_loopback, without_login
from workron.client.transport import cause_of
from workron.durations import to_ms, to_seconds
from workron.errors import ApiAway, ApiRefuses, CallRefused, KeyRefused, StartupError, WorkronError
from workron.models import (
    Beat,
    Claim,
    Claimed,
    ClaimRequest,
    Finished,
    OutputPatch,
    Parent,
    Result,
    Status,
    Verdict,
    WorkerInfo,
)
from workron.models.exchange import MAX_RESULTS, Exchanged, Kept
from workron.models.job_fields import EXECUTION, JobField
from workron.models.workers import Beats, Drain
from workron.times import rfc3339

_ANSWER_S: Final = 10.0
"""Timeout of a response, in addition to the requested wait."""
_CONNECT_S: Final = 3.0
_LONGEST_WAIT_S: Final = 60.0
_CANCELS_WAIT_S: Final = 30.0
_KEEP_S: Final = 60.0
"""Idle connections are closed before the server closes them."""
_REFUSED: Final = frozenset({401, 403})
_NO_CONTENT: Final = 204
_TOO_LARGE: Final = 413
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_NAMED: Final = 100
"""Maximum of queues per request."""


class HttpSource:
    """A source over one API server, or several stateless ones behind one address."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url: Final = without_login(url.rstrip("/"))
        self.lease_ms = 0
        self._http = httpx2.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S),
            limits=httpx2.Limits(keepalive_expiry=_KEEP_S),
            verify=self.url.startswith("https:"),
            trust_env=not is_loopback(self.url),
        )
        self._worker = ""
        self._known = asyncio.Event()
        """Set once the name of the worker is known."""
        self._polled = ""
        """Id of the request of the open poll."""

    @classmethod
    async def connect(cls, url: str, key: str | None) -> Self:
        """Return the API's lease; raise StartupError if it rejects the worker, StoreUnavailable without a response."""
        source = cls(url, key)
        try:
            response = await source._send("POST", "/exchange", {"worker_id": "new"})
            source.lease_ms = response["lease_ms"]
        except (CallRefused, NotTheApi, KeyError) as problem:
            await source.aclose()
            said = str(problem) if isinstance(problem, WorkronError) else f"{source.url} answered something else"
            raise StartupError(f"{said}; is {source.url} the API of this version?") from problem
        except KeyRefused as error:
            await source.aclose()
            raise StartupError(f"{error}: give it with --token, or set WORKRON_API_KEY") from error
        except BaseException:
            await source.aclose()
            raise
        return source

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        self._name(worker)
        polled = request is not None and request.request_id == self._polled
        if request is None or request.limit == 0 or polled:  # of a poll that was given up the server takes back all
            finished = (await self._exchange(results, None)).finished if results else []
            return Exchanged(finished, Claimed(parked=polled), propagating=False, asked=bool(results))
        exchanged = await self._exchange(results, request)
        claimed = exchanged.claimed
        if request.park_ms and not (claimed.more or claimed.answered):
            claimed = Claimed(parked=True)  # when scheduled jobs are due is the server's care then
        return Exchanged(exchanged.finished, claimed, propagating=False)

    async def introduce(self, info: WorkerInfo) -> None:
        document = {"worker": _about(info), "held": []}
        claim = {"request_id": "first", "queues": list(info.queues), "limit": 0}  # of no request: it brings nothing
        try:
            await self._send("POST", "/heartbeats", document)
            await self._send("POST", "/exchange", {"worker_id": info.id, "claim": claim})
        except ApiRefuses as error:
            raise StartupError(str(error)) from error

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        self._name(info.id)
        document = {"worker": _about(info), "held": [{"id": job_id, "fence": fence} for job_id, fence in held]}
        answer = await self._ask("POST", "/heartbeats", document)
        wish = answer["drain"]
        drain = None if wish is None else Drain(to_ms(wish["timeout"]))
        return Beats({beat["fence"]: Beat(beat["state"]) for beat in answer["data"]}, drain)

    async def begin(self, job_id: str, fence: int) -> bool:
        try:
            await self._send("POST", f"/jobs/{quote(job_id, safe='')}/heartbeat", {"fence": fence, "begins": True})
        except CallRefused:
            return False
        return True

    async def leave(self, worker: str) -> None:
        with suppress(CallRefused):  # it was unknown
            await self._send("DELETE", f"/workers/{quote(worker, safe='')}")

    async def unfinished(self, queues: Sequence[str]) -> int:
        left = 0
        for start in range(0, len(queues), _NAMED):
            names = urlencode([("limit", _NAMED), *(("name", queue) for queue in queues[start : start + _NAMED])])
            for queue in (await self._send("GET", f"/queues?{names}"))["data"]:
                left += sum(number for status, number in queue["counts"].items() if not Status(status).terminal)
        return left

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        for start in range(0, len(held), MAX_RESULTS):
            released = [{"id": job_id, "fence": fence} for job_id, fence in held[start : start + MAX_RESULTS]]
            await self._send("POST", "/exchange", {"worker_id": self._worker, "released": released})

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        data = [_piece(job_id, fence, patch) for job_id, fence, patch in patches]
        answer = await self._ask("POST", "/outputs", {"data": data})
        return [Kept(piece["state"]) for piece in answer["data"]]

    async def parents(self, job_id: str) -> list[Parent]:
        answer = await self._ask("GET", f"/jobs/{quote(job_id, safe='')}/parents")
        return [_parent(parent) for parent in answer["data"]]

    async def wait(self, request: ClaimRequest) -> Claimed:
        wait_s = min(to_seconds(request.park_ms), _LONGEST_WAIT_S)
        document = {
            "worker_id": request.worker,
            "queues": list(request.queues),
            "limit": min(request.limit, MAX_RESULTS),
            "wait": wait_s,
            "request_id": request.request_id,
            "begins": request.begins,
        }
        self._polled = request.request_id
        try:
            answer = await self._ask("POST", "/claims", document, wait_s=wait_s)
        finally:
            self._polled = ""
        claims = tuple(map(_claim, answer["data"]))
        return Claimed(claims, answered=bool(claims))

    async def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        await self._known.wait()
        while True:
            params = {"worker_id": self._worker, "wait": f"{_CANCELS_WAIT_S:g}"}
            answer = await self._ask("GET", "/cancels", params=params, wait_s=_CANCELS_WAIT_S)
            for cancel in answer["data"]:
                yield self._worker, cancel["id"], cancel["fence"]
            if answer["heartbeat"]:
                yield self._worker, "", 0

    async def aclose(self) -> None:
        await self._http.aclose()

    def _name(self, worker: str) -> None:
        self._worker = worker
        self._known.set()

    async def _exchange(self, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        document: dict[str, Any] = {"worker_id": self._worker, "results": [_result(result) for result in results]}
        if request is not None:
            part = {"request_id": request.request_id, "queues": list(request.queues), "limit": request.limit}
            document["claim"] = part | {"limit": min(request.limit, MAX_RESULTS), "begins": request.begins}
        answer = await self._ask("POST", "/exchange", document)
        claims = tuple(map(_claim, answer["claims"]))
        due_ms = None if answer["next_due"] is None else math.ceil(answer["next_due"] * 1000)
        claimed = Claimed(claims, more=answer["more"], next_due_in_ms=due_ms, answered=bool(claims) or answer["spent"])
        return Exchanged([_finished(one) for one in answer["results"]], claimed, propagating=False)

    async def _ask(self, *args: Any, **more: Any) -> "_Answer":
        """Return a document that raises NotTheApi for missing members."""
        return _Answer(await self._send(*args, **more) or {})

    async def _send(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Any:
        """Return the response's document; raise StoreUnavailable without a response, or if the API's store is away."""
        timeout = httpx2.Timeout(_ANSWER_S + wait_s, connect=_CONNECT_S)
        content = None if document is None else orjson.dumps(document)
        try:
            response = await self._http.request(method, path, content=content, params=params, timeout=timeout)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ApiAway(f"can't reach the API at {self.url}: {cause_of(error)}") from error
        if response.status_code == _NO_CONTENT:
            return None
        with suppress(ValueError):
            if response.is_success and isinstance(answer := orjson.loads(response.content), dict):
                return answer
        raise self._refusal(response)

    def _refusal(self, response: httpx2.Response) -> ApiAway:
        status = response.status_code
        said = f"the API at {self.url} answered {status}: {_detail(response)}"
        if status in _REFUSED:
            return KeyRefused(said, retry_after_s=5.0)
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
            return ApiAway(said)
        ours = response.headers.get("content-type", "").startswith("application/problem+json")
        if not ours and status != _TOO_LARGE:  # proxies have limits of their own
            return NotTheApi(said)
        return CallRefused(said)


class _Answer(dict[str, Any]):
    """A document of the API; a missing member shows that another server wrote it."""

    def __missing__(self, name: str) -> NoReturn:
        raise NotTheApi(f"something else answered than the API of this version: there is no {name}")


class NotTheApi(ApiAway):
    """Another server answered, such as a misconfigured proxy. While running, this is temporary."""

    is_outage = False


def _detail(response: httpx2.Response) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return str(orjson.loads(response.content)["detail"])
    return response.reason_phrase


def _about(info: WorkerInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "queues": info.queues,
        "slots": info.slots,
        "running": info.running,
        "started_at": rfc3339(info.started_at_ms),
        "version": info.version,
        "jobs": info.jobs,
        "draining": info.draining,
    }


def _output(patch: OutputPatch) -> dict[str, Any]:
    return {"offset": patch.offset, "total": patch.total, "base64": base64.b64encode(patch.data).decode()}


def _piece(job_id: str, fence: int, patch: OutputPatch) -> dict[str, Any]:
    output = _output(patch) if patch.data or patch.progress is None else None
    return {"id": job_id, "fence": fence, "output": output, "progress": patch.progress}


def _result(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    return {
        "id": result.id,
        "fence": result.fence,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "error": outcome.error,
        "retry_after": to_seconds(outcome.retry_after_ms),
        "result": None if outcome.result is None else orjson.loads(outcome.result),
        "progress": outcome.progress,
        "output": None if result.output is None else _output(result.output),
    }


def _parent(document: Mapping[str, Any]) -> Parent:
    status = None if document["status"] is None else Status(document["status"])
    return Parent(document["id"], status, document["name"], document["result"], document["left_out"])


def _finished(answer: Mapping[str, Any]) -> Finished:
    status = answer["status"]
    return Finished(answer["id"], Verdict(answer["verdict"]), None if status is None else Status(status))


def _claim(document: Mapping[str, Any]) -> Claim:
    return Claim(
        id=document["id"],
        fence=document["fence"],
        attempt=document["attempt"],
        lease_ms=document["lease_ms"],
        queue=document["queue"],
        more=document.get("more") or {},
        **{field.name: _value(field, document[field.shown]) for field in EXECUTION},
    )


def _value(field: JobField, shown: Any) -> Any:
    """Return a plain field of a document as it is in a claim."""
    return to_ms(shown) if field.kind == "duration" else shown
