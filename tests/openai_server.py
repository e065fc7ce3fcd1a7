"""A server that speaks the protocols of models over real sockets, from a script.

OpenAI's chat completions and responses, Anthropic's messages and Gemini's contents, each whole or
streamed, and any stream.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Chunk = dict[str, Any]
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 80},
}


class Said(NamedTuple):
    """An answer of text, in as many pieces as there are."""

    pieces: tuple[str, ...]
    finish: str = "stop"


class Calls(NamedTuple):
    """An answer of calls: (id, name, arguments as JSON text); the arguments come in two pieces.

    What is `sealed` is for the vendor alone, and it wants it back unchanged.
    """

    calls: tuple[tuple[str, str, str], ...]
    text: str = ""
    finish: str = "tool_calls"
    sealed: str = ""


class Broken(NamedTuple):
    """The connection is cut in the middle of this answer, after so many chunks."""

    answer: Said | Calls
    after: int


class Unfinished(NamedTuple):
    """The answer just ends after so many chunks, as if that were all; no word of its end."""

    answer: Said | Calls
    after: int


class Garbage(NamedTuple):
    """Something that is no event of the protocol."""

    text: str = "{not json"


class Raw(NamedTuple):
    """A stream of whatever it is, whoever is asked; it goes on like its end, or stops there."""

    pieces: tuple[str, ...]
    endless: bool = False


class Refused(NamedTuple):
    """An error in place of an answer."""

    status: int
    message: str = "no"
    code: str = ""


class Slow(NamedTuple):
    """An answer that stops after its first piece and goes on when the event is set."""

    answer: Said
    go_on: threading.Event


Answer = Said | Calls | Broken | Unfinished | Garbage | Raw | Refused | Slow
# An answer, or what makes one of a request.
Scripted = Answer | Callable[[dict[str, Any]], Answer]


def said(*pieces: str) -> Said:
    return Said(pieces)


def called(name: str, arguments: object, id: str = "call_1") -> Calls:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Calls(((id, name, text),))


class Server:
    """Answers in the order of the script; the last answer is given again and again."""

    def __init__(self, answers: Iterable[Scripted]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[str] = []  # of the requests, byte for byte
        self.gone = threading.Event()  # a client hung up on a slow answer
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"script": self})
        )
        self._http.daemon_threads = True
        self._http.handle_error = _quiet  # type: ignore[assignment]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def next(self, request: dict[str, Any], headers: dict[str, str], body: str) -> Answer:
        with self._lock:
            self.requests.append(request)
            self.bodies.append(body)
            self.headers.append(headers)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return answer(request) if callable(answer) else answer

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def serving(*answers: Scripted) -> Iterator[Server]:
    """A server with that script, for as long as the block lasts."""
    server = Server(answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def raw_parts(body: str) -> dict[str, str]:
    """The text of each value of an object, exactly as it was sent."""
    decoder, at, found = json.JSONDecoder(), 1, dict[str, str]()
    while (at := _past(body, at, " \r\n\t,")) < len(body) and body[at] != "}":
        key, at = decoder.raw_decode(body, at)
        start = _past(body, at, " \r\n\t:")
        _, at = decoder.raw_decode(body, start)
        found[key] = body[start:at]
    return found


def _past(text: str, at: int, skipped: str) -> int:
    while at < len(text) and text[at] in skipped:
        at += 1
    return at


def _quiet(*_: object) -> None:
    """Whoever hangs up in the middle of a request is no fault of the server's."""


def _chunks(answer: Said | Calls) -> list[Chunk]:
    if isinstance(answer, Said):
        deltas: list[Chunk] = [{"content": piece} for piece in answer.pieces]
    else:
        deltas = [{"content": answer.text}] if answer.text else []
        for index, call in enumerate(answer.calls):
            deltas += _call_deltas(index, *call)
    return [{"delta": delta, "finish_reason": None} for delta in deltas] + [
        {"delta": {}, "finish_reason": answer.finish}
    ]


def _call_deltas(index: int, id: str, name: str, arguments: str) -> list[Chunk]:
    half = len(arguments) // 2
    first = {"name": name, "arguments": arguments[:half]}
    return [
        {"tool_calls": [{"index": index, "id": id, "type": "function", "function": first}]},
        {"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]},
    ]


def _message(answer: Said | Calls) -> Chunk:
    if isinstance(answer, Said):
        return {"role": "assistant", "content": "".join(answer.pieces)}
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in answer.calls
    ]
    return {"role": "assistant", "content": answer.text or None, "tool_calls": calls}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size).decode()
        request = json.loads(body)
        answer = self.script.next(request, {k.lower(): v for k, v in self.headers.items()}, body)
        if isinstance(answer, Raw):
            self._raw(answer)
        elif isinstance(answer, Refused):
            error = {"message": answer.message, "code": answer.code or None}
            self._whole(answer.status, {"error": error})
        elif self.path.endswith("/responses") and isinstance(answer, Said | Calls):
            self._respond(request, answer)
        elif "enerateContent" in self.path and isinstance(answer, Said | Calls):
            self._generate(answer)
        elif self.path.endswith("/messages") and isinstance(answer, Said | Calls):
            self._converse(request, answer)
        elif not self.path.endswith("/chat/completions"):
            self._whole(404, {"error": {"message": f"no {self.path} here"}})
        elif not request.get("stream"):
            assert isinstance(answer, Said | Calls)
            self._whole(200, _completion(request, answer))
        else:
            self._stream(request, answer)

    def _respond(self, request: dict[str, Any], answer: Said | Calls) -> None:
        events = list(_response_events(request, answer))
        if not request.get("stream"):
            self._whole(200, events[-1]["response"])
            return
        self._begin()
        self._events(map(json.dumps, events))
        self._end()

    def _generate(self, answer: Said | Calls) -> None:
        parts = _gemini_parts(answer)
        if ":stream" not in self.path:
            self._whole(200, _gemini(parts))
            return
        self._begin()
        for part in parts:
            self._chunk(f"data: {json.dumps(_gemini([part]))}\r\n\r\n")
        self._end()

    def _converse(self, request: dict[str, Any], answer: Said | Calls) -> None:
        message = _anthropic_message(request, answer)
        if not request.get("stream"):
            self._whole(200, message)
            return
        self._begin()
        for event in _anthropic_events(message):
            self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
        self._end()

    def _whole(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _stream(self, request: dict[str, Any], answer: Answer) -> None:
        self._begin()
        match answer:
            case Garbage():
                self._events([answer.text])
            case Broken():
                self._events(_encoded(request, _chunks(answer.answer)[: answer.after]))
                self._cut()
                return
            case Unfinished():
                self._events(_encoded(request, _chunks(answer.answer)[: answer.after]))
            case Slow():
                self._slow(request, answer)
                return
            case Said() | Calls():
                chunks = _chunks(answer)
                self._events([*_encoded(request, chunks), *_ending(request)])
        self._end()

    def _raw(self, answer: Raw) -> None:
        self._begin()
        for piece in answer.pieces:
            self._chunk(piece)
        while answer.endless and not _hung_up(self.connection):
            self._chunk(answer.pieces[-1])
            time.sleep(0.02)
        self._end()

    def _slow(self, request: dict[str, Any], answer: Slow) -> None:
        chunks = list(_encoded(request, _chunks(answer.answer)))
        self._events(chunks[:1])
        while not answer.go_on.wait(0.02):
            if _hung_up(self.connection):
                self.script.gone.set()
                self.close_connection = True
                return
        self._events([*chunks[1:], *_ending(request)])
        self._end()

    def _events(self, events: Iterable[str]) -> None:
        for event in events:
            self._chunk(f"data: {event}\n\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)


def _base(request: dict[str, Any], object: str) -> Chunk:
    return {"id": "chat-1", "object": object, "created": 1, "model": request["model"]}


def _encoded(request: dict[str, Any], chunks: Sequence[Chunk]) -> Iterator[str]:
    base = _base(request, "chat.completion.chunk")
    for chunk in chunks:
        yield json.dumps({**base, "choices": [{"index": 0, **chunk}]})


def _ending(request: dict[str, Any]) -> list[str]:
    base = _base(request, "chat.completion.chunk")
    return [json.dumps({**base, "choices": [], "usage": USAGE}), "[DONE]"]


def _completion(request: dict[str, Any], answer: Said | Calls) -> Chunk:
    choice = {"index": 0, "message": _message(answer), "finish_reason": answer.finish}
    return {**_base(request, "chat.completion"), "choices": [choice], "usage": USAGE}


def _gemini_parts(answer: Said | Calls) -> list[Chunk]:
    if isinstance(answer, Said):
        return [{"text": piece} for piece in answer.pieces]
    parts: list[Chunk] = [{"text": answer.text}] if answer.text else []
    for number, (id, name, arguments) in enumerate(answer.calls):
        call = {"name": name, "args": json.loads(arguments), **({"id": id} if id else {})}
        seal = {"thoughtSignature": answer.sealed} if answer.sealed and not number else {}
        parts.append({"functionCall": call, **seal})
    return parts


def _gemini(parts: list[Chunk]) -> Chunk:
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}


def _anthropic_message(request: dict[str, Any], answer: Said | Calls) -> Chunk:
    blocks: list[Chunk] = []
    if isinstance(answer, Said):
        blocks.append({"type": "text", "text": "".join(answer.pieces)})
    else:
        if answer.sealed:
            blocks.append({"type": "thinking", "thinking": "Hm.", "signature": answer.sealed})
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        for id, name, arguments in answer.calls:
            blocks.append(
                {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
            )
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": blocks,
        "stop_reason": "end_turn" if isinstance(answer, Said) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 10},
    }


def _anthropic_events(message: Chunk) -> Iterator[Chunk]:
    """The answer as it is streamed: blocks that are begun, grow and end."""
    begun = {**message, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        empty, deltas = _anthropic_deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}


def _anthropic_deltas(block: Chunk) -> tuple[Chunk, list[Chunk]]:
    """A block as it begins, and what it grows by."""
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        seal = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [thought, seal]
    if block["type"] == "text":
        pieces = (block["text"][:3], block["text"][3:])
        texts = [{"type": "text_delta", "text": piece} for piece in pieces]
        return {"type": "text", "text": ""}, texts
    written = json.dumps(block["input"])
    halves = (written[: len(written) // 2], written[len(written) // 2 :])
    inputs = [{"type": "input_json_delta", "partial_json": half} for half in halves]
    return {**block, "input": {}}, inputs


def _response_events(request: dict[str, Any], answer: Said | Calls) -> Iterator[Chunk]:
    """The answer in the newer protocol: items that are begun, grow and are done."""
    base = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": request["model"],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    items = [_text_item(answer)] if isinstance(answer, Said) else _call_items(answer)
    number = itertools.count()
    started = {"response": {**base, "status": "in_progress", "output": []}}
    yield {"type": "response.created", "sequence_number": next(number), **started}
    for index, item in enumerate(items):
        for event in _item_events(item):
            yield {"sequence_number": next(number), "output_index": index, **event}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 110,
    }
    done = {**base, "status": "completed", "output": items, "usage": usage}
    yield {"type": "response.completed", "sequence_number": next(number), "response": done}


def _text_item(answer: Said) -> Chunk:
    part = {"type": "output_text", "text": "".join(answer.pieces), "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**message, "content": [part]}


def _call_items(answer: Calls) -> list[Chunk]:
    seal = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": answer.sealed}
    return [*([seal] if answer.sealed else []), *map(_call_item, answer.calls)]


def _call_item(call: tuple[str, str, str]) -> Chunk:
    id, name, arguments = call
    item = {"id": f"fc_{id}", "type": "function_call", "call_id": id, "name": name}
    return {**item, "arguments": arguments, "status": "completed"}


def _item_events(item: Chunk) -> Iterator[Chunk]:
    at = {"item_id": item["id"]}
    if item["type"] == "reasoning":
        yield {"type": "response.output_item.added", "item": item}
    elif item["type"] == "message":
        [part] = item["content"]
        yield {"type": "response.output_item.added", "item": {**item, "content": []}}
        yield {
            "type": "response.content_part.added",
            **at,
            "content_index": 0,
            "part": {**part, "text": ""},
        }
        for piece in (part["text"][:3], part["text"][3:]):
            delta = {"type": "response.output_text.delta", "delta": piece, "logprobs": []}
            yield {**delta, **at, "content_index": 0}
    else:
        yield {"type": "response.output_item.added", "item": {**item, "arguments": ""}}
        delta = {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
        yield {**delta, **at}
    yield {"type": "response.output_item.done", "item": item}
