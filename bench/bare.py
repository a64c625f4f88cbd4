"""`python -m bench.bare PORT`: FastAPI routes that do nothing, one of them validates the body of `POST /jobs` first."""

import asyncio
import sys
from typing import Any

from fastapi import FastAPI

from api.server import Server, bind
from workron.specs.job import NewJob

app = FastAPI()


@app.post("/jobs", status_code=201)
async def submit(job: NewJob) -> dict[str, Any]:
    return {"id": "0" * 22, "command": job.command, "status": "pending"}


@app.post("/nothing")
async def nothing() -> dict[str, Any]:
    return {}


if __name__ == "__main__":
    asyncio.run(Server(app).serve(sockets=[bind("127.0.0.1", int(sys.argv[1]))]))
