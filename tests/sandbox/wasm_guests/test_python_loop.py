from __future__ import annotations

from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.wasm_guests.running import said, script


def test_tasks_and_time_work(sandbox: WasmSandbox, place: Place) -> None:
    code = """
import asyncio
async def one(number):
    await asyncio.sleep(0.3 * (3 - number))
    print(number)
    return number
async def main():
    print(await asyncio.gather(*map(one, range(3))), await asyncio.to_thread(sum, [1, 2]))
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        print("over")
asyncio.run(main())
"""
    printed = said(script(sandbox, place, {}, "python3", "-c", code))
    assert printed == "2\n1\n0\n[0, 1, 2] 3\nover\n"


def test_waiting_for_nothing_is_an_error(sandbox: WasmSandbox, place: Place) -> None:
    code = "import asyncio\nasyncio.run(asyncio.wait_for(asyncio.Event().wait(), None))"
    outcome = script(sandbox, place, {}, "python3", "-c", code)
    assert outcome.exit_code == 1
    assert b"nothing is left that could wake the event loop" in outcome.stderr.data
