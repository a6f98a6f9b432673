"""An MCP client that uses the official Python SDK `mcp`. The test in ../third_party/clients.rs runs it.

    client.py TARGET MODE SCENARIO    connects to a server, calls its tools, and prints one JSON object with the results

TARGET is a URL, or a JSON array with a command and its arguments. MODE is `legacy` (the handshake of the protocol versions up to
2025-11-25) or `auto` (the newest version that both sides support). SCENARIO is the name of a function in this file.
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

KEY = "universal-executor/idempotency-key"


def connect(target, mode, **options):
    """Returns a client that is not yet connected."""
    if target.startswith("["):
        command, *args = json.loads(target)
        target = StdioServerParameters(command=command, args=args)
    return Client(target, mode=mode, read_timeout_seconds=60, **options)


def seen(result):
    """Returns the parts of a result that the test compares."""
    texts = [block.text for block in result.content if block.type == "text"]
    return {"is_error": bool(result.is_error), "structured": result.structured_content, "text": "".join(texts)}


async def refused(call):
    """Returns the code and the message of a protocol error."""
    try:
        return {"accepted": seen(await call)}
    except MCPError as error:
        return {"code": error.code, "message": error.message}


async def calls(target, mode):
    async with connect(target, mode) as client:
        tools = (await client.list_tools()).tools
        return {
            "version": client.protocol_version,
            "server": client.server_info.name,
            "tools": {tool.name: tool.input_schema for tool in tools},
            "outputs": {tool.name: tool.output_schema for tool in tools if tool.output_schema},
            "count": seen(await client.call_tool("count", {"a": 1})),
            "helper": seen(await client.call_tool("helper", {"message": "Where is order 7?"})),
            "fail": seen(await client.call_tool("fail", {})),
            "invalid_tool": seen(await client.call_tool("count", {"a": "one"})),
            "invalid_agent": seen(await client.call_tool("helper", {"text": "Where is order 7?"})),
            "unknown": await refused(client.call_tool("missing", {})),
        }


async def progress(target, mode):
    """Calls a tool that ends after the client has received its progress."""
    reports = []
    async with connect(target, mode) as client:
        started = asyncio.Event()

        async def report(progress, _total, message):
            reports.append([progress, message])
            started.set()

        call = asyncio.create_task(client.call_tool("slow", {}, progress_callback=report))
        await started.wait()
        await client.call_tool("finish", {})
        return {"reports": reports, "result": seen(await call)}


async def cancel(target, mode):
    """Cancels a call during its execution, and waits until the tool has noticed."""
    async with connect(target, mode) as client:
        started = asyncio.Event()

        async def report(_progress, _total, _message):
            started.set()

        call = asyncio.create_task(client.call_tool("slow", {}, progress_callback=report))
        await started.wait()
        call.cancel()
        await asyncio.wait([call])
        dropped = seen(await client.call_tool("dropped", {}))
        return {"is_cancelled": call.cancelled(), "dropped": dropped, "later": seen(await client.call_tool("count", {}))}


async def disconnect(target, mode):
    """Disconnects during a call."""
    started = asyncio.Event()

    async def report(_progress, _total, _message):
        started.set()

    async with connect(target, mode) as client:
        call = asyncio.create_task(client.call_tool("slow", {}, progress_callback=report))
        await started.wait()
    await asyncio.wait([call])
    return {}


async def pay(target, mode, action, content):
    """Calls an agent whose tool needs an approval, and answers the question."""
    asked = []

    async def answer(_context, params):
        asked.append({"message": params.message, "schema": params.requested_schema})
        return ElicitResult(action=action, content=content)

    async with connect(target, mode, elicitation_callback=answer) as client:
        result = await client.call_tool("cashier", {"message": "Pay 5."})
        return {"version": client.protocol_version, "asked": asked, "result": seen(result)}


async def accept(target, mode):
    return await pay(target, mode, "accept", {"answer": True})


async def refuse(target, mode):
    return await pay(target, mode, "accept", {"answer": False})


async def decline(target, mode):
    return await pay(target, mode, "decline", None)


async def repeat(target, mode):
    """Makes calls with idempotency keys over two connections."""
    results = []
    for key in ["k-1", "k-1", "k-2"]:
        async with connect(target, mode) as client:
            results.append(seen(await client.call_tool("count", {}, meta={KEY: key})))
    async with connect(target, mode) as client:
        conflict = seen(await client.call_tool("count", {"a": 2}, meta={KEY: "k-1"}))
    return {"results": results, "conflict": conflict}


async def main():
    target, mode, scenario = sys.argv[1:]
    print(json.dumps(await globals()[scenario](target, mode)))


asyncio.run(main())
