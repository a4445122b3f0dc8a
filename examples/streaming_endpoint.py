"""A streaming HTTP endpoint: when the client goes away, the model is no longer paid.

The stream of a run lives inside the request's handler. aiohttp cancels the handler when the client disconnects,
which leaves the `async with` block: the provider's stream is closed and the budget settled before the handler ends.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientSession, web

from agentkit import Binding, Budget, CallRuntime, RunContext, Scope
from agentkit.core.contracts import ModelEvent, TextDelta

RUNTIME = web.AppKey("runtime", CallRuntime)
BINDING = web.AppKey("binding", Binding)


async def texts(calls: CallRuntime, binding: Binding, question: str, ctx: RunContext) -> AsyncIterator[str]:
    """Yield the pieces of an answer; closing this generator, from any task, ends the call."""
    async with calls.stream(binding, question, ctx=ctx) as events:
        async for event in events:
            if isinstance(event, ModelEvent) and isinstance(event.event, TextDelta):
                yield event.event.text


async def answer(request: web.Request) -> web.StreamResponse:
    """Stream the answer to `?q=` as plain text."""
    calls = request.app[RUNTIME]
    ctx = calls.context(None, Scope(tenant=request.query.get("tenant", "acme")), budget=Budget("0.10"))
    response = web.StreamResponse()
    await response.prepare(request)
    pieces = texts(calls, request.app[BINDING], request.query["q"], ctx)
    try:
        async for piece in pieces:
            await response.write(piece.encode())
    finally:
        await pieces.aclose()
    await response.write_eof()
    return response


def make_app(binding: Binding) -> web.Application:
    """Return the application; its runtime lives as long as it does."""
    app = web.Application()
    app[BINDING] = binding
    app.router.add_get("/answer", answer)

    async def runtime(app: web.Application) -> AsyncIterator[None]:
        async with CallRuntime() as calls:
            app[RUNTIME] = calls
            yield

    app.cleanup_ctx.append(runtime)
    return app


async def main(model: str = "scripted:One piece after another.") -> str:
    """Serve on loopback, ask once to the end, and return the answer."""
    runner = web.AppRunner(make_app(Binding(model)), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with ClientSession() as client, client.get(f"http://127.0.0.1:{port}/answer?q=Go") as response:
            text = await response.text()
            print(text)
            return text
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
