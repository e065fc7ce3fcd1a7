"""Tables of what named functions do, for Python and JavaScript.

A name is dotted, as the source reaches the function: `os.system`, `child_process.exec`. A method
of an unknown value is `?.name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from skillbelt.records import NamedTuple
from skillbelt.scan.decoding import decode_text
from skillbelt.scan.ledger import HOLE, SERVICE_OF, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.places import place_class, prints_token, service_of

_NONE: Mapping[str, Traced] = MappingProxyType({})


class TracedCall(NamedTuple):
    """A call: the function's name, the object of a method, arguments, line, labels of the name."""

    name: str
    owner: Traced
    positional: tuple[Traced, ...] = ()
    named: Mapping[str, Traced] = _NONE
    line: int = 0
    labels: frozenset[str] = frozenset()

    @property
    def first(self) -> Traced:
        """The first argument."""
        return self.positional[0] if self.positional else UNKNOWN

    def argument(self, at: int, *names: str) -> Traced:
        """Return an argument by its place or one of its names."""
        for name in names:
            if name in self.named:
                return self.named[name]
        return self.positional[at] if at < len(self.positional) else UNKNOWN

    @property
    def every(self) -> tuple[Traced, ...]:
        """All arguments."""
        return (*self.positional, *self.named.values())


Judge = Callable[[TracedCall, Ledger], Traced]


def judge_call(call: TracedCall, ledger: Ledger) -> Traced:
    """Note what a call does; return what is known of its result."""
    find = _find_judge if len(call.name) < _MAX_KEPT_NAME else _find_judge.__wrapped__
    name, judge = find(call.name)
    if judge is not None:
        if judge in _POWERS and any(one.startswith("reflected:") for one in call.labels):
            ledger.find("reflective-call", call.line, name)
        return judge(call if name == call.name else call._replace(name=name), ledger)
    labels = merge(call.every) | call.owner.labels
    return Traced(labels=_without_reflection(labels), name=f"{name}()")


_MAX_KEPT_NAME = 100


@lru_cache(maxsize=4096)
def _find_judge(name: str) -> tuple[str, Judge | None]:
    """Return the usual name of a function, and its judge if there is one."""
    name = name.removeprefix("builtins.").removeprefix("__builtins__.")
    name = name.removeprefix("node:").replace("fs/promises.", "fs.promises.", 1)
    return name, _EXACT.get(name) or _by_method(name)


def _without_reflection(labels: frozenset[str]) -> frozenset[str]:
    if not labels:
        return labels
    return frozenset(one for one in labels if not one.startswith("reflected:"))


def _by_method(name: str) -> Judge | None:
    """Return the judge of a method, by the module before it or by the method's own name."""
    module, _, method = name.rpartition(".")
    first = module.partition(".")[0].removesuffix("()")
    if first in _CLIENTS and method.rstrip("()") in _VERBS:
        return _request
    if first in ("subprocess", "child_process", "node:child_process") and method in _STARTS:
        return _process
    return _METHODS.get(method) if module else None


# --- running -------------------------------------------------------------------------------------


def _code(call: TracedCall, ledger: Ledger) -> Traced:
    language = (
        "javascript" if call.name in ("Function", "eval_js", "vm.runInThisContext") else "python"
    )
    code = call.positional[-1] if call.name == "Function" and call.positional else call.first
    ledger.runs_code(code, call.line, f"{call.name}()", language)
    return Traced(labels=code.labels, name="exec()")


def _compile(call: TracedCall, ledger: Ledger) -> Traced:
    return call.first


def _shell(call: TracedCall, ledger: Ledger) -> Traced:
    command = call.first
    if command.items is not None:
        return _process(call, ledger)
    ledger.runs_shell(command, call.line, f"{call.name}()")
    if command.text is None or command.text == HOLE:
        ledger.find("dynamic-code", call.line, f"{call.name}()", "note")
    _judge_secret_words(command, call, ledger)
    return Traced(labels=_label_output(command.text or "") | command.labels)


def _process(call: TracedCall, ledger: Ledger) -> Traced:
    command = call.argument(0, "args", "cmd")
    if command.items is not None and len(command.items) == 1 and " " in command.items[0].known:
        command = command.items[0]._replace(labels=command.labels)
    if command.items is None and len(call.positional) > 1 and call.positional[1].items is not None:
        command = Traced(
            items=(command, *call.positional[1].items), labels=merge(call.positional[:2])
        )
    if command.items is None:
        ledger.runs_shell(command, call.line, f"{call.name}()")
        _judge_secret_words(command, call, ledger)
        return Traced(
            labels=_label_output(command.text or "")
            | command.labels
            | call.argument(9, "input").labels
        )
    words = [one.text if one.text is not None else HOLE for one in command.items]
    text = " ".join(_quote(word) for word in words)
    ledger.runs_shell(
        Traced(text=text, labels=command.labels - {"file"}), call.line, f"{call.name}()"
    )
    _judge_secret_words(Traced(text=text, labels=command.labels), call, ledger)
    return Traced(labels=_label_output(text) | command.labels)


def _quote(word: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./~\ufffc-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _label_output(command: str) -> frozenset[str]:
    """Return where what a command prints comes from."""
    words = command.split()
    if words[:1] and words[0] in ("env", "printenv", "set"):
        return frozenset(("environment", "command"))
    if words[:1] and words[0] in ("curl", "wget"):
        return frozenset(("net",))
    if prints_token(command):
        return frozenset(("service", "command", f"{SERVICE_OF}{service_of(command)}"))
    if re.search(r"find-generic-password|dump-keychain", command):
        return frozenset(("credential", "command"))
    return frozenset(("command",))


def _judge_secret_words(command: Traced, call: TracedCall, ledger: Ledger) -> None:
    """Note a secret in the text of a command that connects to the network."""
    labels = command.labels - {"file", "decoded", "net", "command"}
    if not labels or not command.text:
        return
    if re.match(r"\s*(?:dig|nslookup|host|ping)\b", command.text):
        ledger.sends(command, command, call.line, part="name")
    elif re.match(r"\s*(?:curl|wget|nc|ncat|http)\b", command.text):
        ledger.sends(command, command, call.line, part="header" if "-H" in command.text else "body")


def _unpickle(call: TracedCall, ledger: Ledger) -> Traced:
    labels = merge(call.every)
    if "net" in labels or "decoded" in labels:
        ledger.runs_code(Traced(labels=labels), call.line, f"{call.name}()")
    return Traced(labels=labels | ({"decoded"} if "marshal" in call.name else frozenset()))


def _load_library(call: TracedCall, ledger: Ledger) -> Traced:
    """Note a compiled library that the program loads from a file that it fetched."""
    fetched = ledger.fetched.get(call.first.known.removeprefix("./"))
    labels = call.first.labels | (fetched.labels if fetched is not None else frozenset())
    unnamed = ledger.path in ledger.unnamed_fetches and (call.first.text or HOLE) == HOLE
    if "net" in labels or unnamed:
        ledger.runs_code(Traced(labels=labels | {"net"}), call.line, f"{call.name}()")
    return Traced(name=f"{call.name}()")


def _print(call: TracedCall, ledger: Ledger) -> Traced:
    for one in call.positional:
        ledger.shows(one, call.line, f"{call.name}()")
    return Traced(labels=_without_reflection(merge(call.every)), name=f"{call.name}()")


def _spawn_shell(call: TracedCall, ledger: Ledger) -> Traced:
    text = " ".join(one.known for one in call.positional)
    if re.search(r"(?:^|/)(?:ba|z|da)?sh\b|cmd(?:\.exe)?$", text):
        ledger.find("reverse-shell", call.line, f"{call.name}({text})", "ask")
    return UNKNOWN


def _redirect(call: TracedCall, ledger: Ledger) -> Traced:
    """Note `os.dup2` of a socket onto a standard stream: only a remote shell does that."""
    if re.search(r"\bs(?:ock\w*)?\b", call.first.name) or "net" in call.first.labels:
        ledger.find("reverse-shell", call.line, "os.dup2(socket)")
    return UNKNOWN


# --- the network ---------------------------------------------------------------------------------

_CLIENTS = frozenset(
    ("requests", "httpx", "httpx2", "aiohttp", "urllib", "urllib2", "urllib3", "axios", "got",
     "request", "superagent", "needle", "undici", "http", "https", "node:http", "node:https",
     "session", "client", "ky", "websocket", "websockets", "ClientSession", "phin", "$")
)  # fmt: skip
_VERBS = frozenset(
    ("get", "post", "put", "patch", "delete", "head", "options", "request", "urlopen",
     "urlretrieve", "Request", "fetch", "stream", "send", "connect", "create_connection", "ajax",
     "getJSON", "open")
)  # fmt: skip
_BODIES = ("data", "json", "files", "content", "params", "body", "auth")


def _request(call: TracedCall, ledger: Ledger) -> Traced:
    method = call.name.rpartition(".")[2]
    address = call.argument(1 if method == "request" and len(call.positional) > 1 else 0, "url")
    if address.text is None and "url" not in call.named and call.first.items is None:
        address = next((one for one in call.every if "://" in one.known), address)
    line = call.line
    sent = [one for key, one in call.named.items() if key in _BODIES]
    sent += [one for one in call.positional[1:] if one is not address]
    if method in ("send", "write") and call.positional:
        sent.append(call.first)
    if sent:
        ledger.sends(Traced(labels=_select_labels(sent, "body")), address, line)
    for one in (*sent, *call.every):
        header = _select_labels([one], "header")
        if header:
            ledger.sends(Traced(labels=header), address, line, part="header")
    if "headers" in call.named:
        ledger.sends(call.named["headers"], address, line, part="header")
    return Traced(labels=ledger.fetches(address, line))


def _select_labels(values: list[Traced], part: str) -> frozenset[str]:
    """Return the labels of the body, or of what options of JavaScript mark as headers."""
    labels = merge(values)
    headers = frozenset(one[7:] for one in labels if one.startswith("header:"))
    plain = frozenset(one for one in labels if not one.startswith("header:"))
    return headers if part == "header" else plain


def _fetch(call: TracedCall, ledger: Ledger) -> Traced:
    return _request(call, ledger)


def _connect(call: TracedCall, ledger: Ledger) -> Traced:
    """Return the connection of `http.client.HTTPSConnection(host)`, whose methods send."""
    return Traced(
        text=call.first.text, labels=ledger.fetches(call.first, call.line), name="connection"
    )


def _request_by_connection(call: TracedCall, ledger: Ledger) -> Traced:
    """Judge `connection.request(method, path, body, headers)`."""
    sent = merge(one for key, one in call.named.items() if key != "headers")
    ledger.sends(Traced(labels=sent | merge(call.positional[2:3])), call.owner, call.line)
    ledger.sends(call.argument(3, "headers"), call.owner, call.line, part="header")
    ledger.sends(call.argument(1, "url"), call.owner, call.line, part="address")
    return UNKNOWN


def _socket(call: TracedCall, ledger: Ledger) -> Traced:
    target = call.first
    if target.items:
        target = target.items[0]
    labels = ledger.fetches(target, call.line)
    return Traced(labels=labels, name="socket")


def _send(call: TracedCall, ledger: Ledger) -> Traced:
    data = Traced(labels=merge(call.every))
    strong = data.labels & {"credential", "history", "watch", "environment", "service"}
    if strong or any(one.startswith("variable:") for one in data.labels):
        ledger.sends(data, call.owner, call.line)
    return Traced(labels=data.labels)


def _log_to_host(call: TracedCall, ledger: Ledger) -> Traced:
    """Remember the host of `logging.handlers.HTTPHandler`, which gets all later log records."""
    target = call.first
    if target.items:
        target = target.items[0]
    labels = ledger.fetches(target, call.line)
    ledger.log_host = (ledger.path, target)
    return Traced(labels=labels)


def _log(call: TracedCall, ledger: Ledger) -> Traced:
    path, host = ledger.log_host
    if path == ledger.path and host.text:
        _send(call._replace(owner=host), ledger)
    return Traced(labels=_without_reflection(merge(call.every)), name=f"{call.name}()")


def _resolve(call: TracedCall, ledger: Ledger) -> Traced:
    if call.first.labels:
        ledger.sends(call.first, call.first, call.line, part="name")
    return Traced(labels=frozenset(("net",)))


def _download(call: TracedCall, ledger: Ledger) -> Traced:
    return Traced(labels=ledger.fetches(call.first, call.line))


# --- files ---------------------------------------------------------------------------------------


def _open(call: TracedCall, ledger: Ledger) -> Traced:
    path = call.argument(0, "file")
    mode = call.argument(1, "mode").known
    if not path.known:
        return Traced(labels=path.labels | {"file"}, name="open()")
    if any(letter in mode for letter in "wax+"):
        ledger.writes_file(path.known, call.line)
        return Traced(text=path.known, labels=frozenset(), name="written")
    return Traced(labels=_read(path, call.line, ledger), name="open()")


def _read(path: Traced, line: int, ledger: Ledger) -> frozenset[str]:
    labels = ledger.reads_file(path.known, line) | path.labels
    hidden = re.search(r"(?:^|/)\.[^/.]|^/tmp/|^/var/tmp/|^/dev/shm/", path.known)
    return labels | {"hidden-file"} if hidden else labels


def _read_owner(call: TracedCall, ledger: Ledger) -> Traced:
    """Judge `path.read_text()`, where the path is a value."""
    if call.owner.text:
        return Traced(labels=_read(call.owner, call.line, ledger))
    return Traced(
        labels=call.owner.labels | {"file"} if call.owner.name != "socket" else call.owner.labels
    )


def _read_first(call: TracedCall, ledger: Ledger) -> Traced:
    return Traced(labels=_read(call.first, call.line, ledger))


def _write_owner(call: TracedCall, ledger: Ledger) -> Traced:
    if call.owner.text:
        ledger.writes_file(call.owner.text, call.line, Traced(labels=merge(call.every)))
    return UNKNOWN


def _write_first(call: TracedCall, ledger: Ledger) -> Traced:
    if call.first.known:
        ledger.writes_file(call.first.known, call.line, call.argument(1))
    return UNKNOWN


def _copy(call: TracedCall, ledger: Ledger) -> Traced:
    labels = ledger.reads_file(call.first.known, call.line) if call.first.known else frozenset()
    if call.argument(1).known:
        ledger.writes_file(call.argument(1).known, call.line)
    return Traced(labels=labels)


def _remove(call: TracedCall, ledger: Ledger) -> Traced:
    path = call.first.known or call.owner.known
    if "listed" in call.first.labels | call.owner.labels:
        ledger.find("destruction", call.line, f"{call.name}() of each file of {path}", "ask")
    elif path:
        ledger.runs_shell(Traced(text=f"rm -rf {_quote(path)}"), call.line, call.name)
    return UNKNOWN


def _expand(call: TracedCall, ledger: Ledger) -> Traced:
    return call.first._replace(name="") if call.first.text is not None else call.first


def _home(call: TracedCall, ledger: Ledger) -> Traced:
    return Traced(text="~")


def _path_join(call: TracedCall, ledger: Ledger) -> Traced:
    texts = [one.text if one.text is not None else HOLE for one in call.positional]
    return Traced(text="/".join(text.strip("/") if n else text for n, text in enumerate(texts)),
                  labels=merge(call.positional))  # fmt: skip


def _glob(call: TracedCall, ledger: Ledger) -> Traced:
    pattern = f"{call.owner.known}/{call.first.known}" if call.owner.text else call.first.known
    document = re.search(r"(?i)\.(?:docx?|xlsx?|pptx?|pdf|db|sqlite3?|ics|eml)\b", pattern)
    wide = document and not re.search(r"(?i)te?mp|cache|build|dist|log|\bout", pattern)
    labels = frozenset(("file", "listed") if wide else ("file",))
    found = Traced(text=pattern, labels=labels)
    return found._replace(items=(found,) if place_class(pattern) == "credential" else None)


def _database(call: TracedCall, ledger: Ledger) -> Traced:
    return Traced(labels=_read(call.argument(0, "database"), call.line, ledger), name="database")


# --- secrets, decoding, the rest -----------------------------------------------------------------


def _variable(call: TracedCall, ledger: Ledger) -> Traced:
    name = call.first.known
    if not name:
        return UNKNOWN  # the name of the variable is unknown
    return Traced(text=None, labels=ledger.reads_variable(name, call.line))


def _secret(call: TracedCall, ledger: Ledger) -> Traced:
    ledger.find("credential-access", call.line, f"{call.name}()", "note")
    return Traced(labels=frozenset(("service",)))


def _decoder(form: str) -> Judge:
    def run(call: TracedCall, ledger: Ledger) -> Traced:
        source = call.first if call.positional else call.owner
        text = source.text
        plain = decode_text(form, text) if text and HOLE not in text else None
        if plain:
            ledger.names_url(plain, call.line)
        return Traced(text=plain, labels=source.labels | {"decoded"})

    return run


def _codec(call: TracedCall, ledger: Ledger) -> Traced:
    codec = call.argument(1, "encoding").known or call.first.known
    source = call.first if call.name.startswith("codecs") else call.owner
    form = {"hex": "hex", "base64": "base64", "zlib": "gzip"}.get(
        codec, "rot13" if "rot" in codec else ""
    )
    if not form:
        return Traced(text=source.text, labels=source.labels)
    plain = decode_text(form, source.text) if source.text else None
    return Traced(text=plain, labels=source.labels | {"decoded"})


def _screen(call: TracedCall, ledger: Ledger) -> Traced:
    ledger.find("surveillance", call.line, call.name, "note")
    return Traced(labels=frozenset(("watch",)))


def _keys(call: TracedCall, ledger: Ledger) -> Traced:
    ledger.find("surveillance", call.line, call.name)
    return Traced(labels=frozenset(("watch",)))


def _encrypt(call: TracedCall, ledger: Ledger) -> Traced:
    labels = merge(call.every)
    return Traced(labels=labels | ({"encrypted"} if "file" in labels else frozenset()))


def _write_open(call: TracedCall, ledger: Ledger) -> Traced:
    """Judge `file.write(data)`."""
    if "encrypted" in merge(call.every):
        ledger.find("ransom", call.line, call.name, "ask")
    if call.owner.name == "written" and call.owner.text:
        ledger.writes_file(call.owner.text, call.line, call.first)
    elif "net" in call.first.labels:
        ledger.unnamed_fetches.add(ledger.path)
    if call.owner.name == "socket":
        return _send(call, ledger)
    return UNKNOWN


def _path(call: TracedCall, ledger: Ledger) -> Traced:
    return _path_join(call, ledger)


def _rows(*rows: tuple[str, Judge]) -> dict[str, Judge]:
    return {name: judge for names, judge in rows for name in names.split()}


_EXACT: dict[str, Judge] = _rows(
    ("eval exec Function vm.runInThisContext vm.runInNewContext eval_js types.FunctionType"
     " types.CodeType", _code),
    ("compile", _compile),
    ("print sys.stdout.write", _print),
    ("os.system os.popen os.popen2 commands.getoutput subprocess.getoutput "
     "subprocess.getstatusoutput asyncio.create_subprocess_shell child_process.exec "
     "child_process.execSync node:child_process.exec node:child_process.execSync exec_sync "
     "execSync platform.popen popen2.popen ctypes.CDLL().system ctypes.cdll.LoadLibrary().system "
     "ctypes.CDLL().popen", _shell),
    ("ctypes.CDLL ctypes.cdll.LoadLibrary ctypes.PyDLL process.dlopen", _load_library),
    ("asyncio.create_subprocess_exec os.execv os.execvp os.execve os.spawnv os.posix_spawn "
     "spawnSync execFileSync execFile spawn Bun.spawn Deno.run", _process),
    ("os.execl os.execlp os.execle pty.spawn", _spawn_shell),
    ("os.dup2", _redirect),
    ("pickle.loads pickle.load marshal.loads dill.loads cPickle.loads yaml.unsafe_load", _unpickle),
    ("urlopen urllib.request.urlopen urllib.request.Request urllib.request.urlretrieve fetch "
    "axios got "
     "requests.Request navigator.sendBeacon "
     "websocket.create_connection new_WebSocket WebSocket", _fetch),
    ("socket.create_connection socket.socket.connect net.connect net.createConnection "
     "tls.connect smtplib.SMTP smtplib.SMTP_SSL ftplib.FTP", _socket),
    ("logging.handlers.HTTPHandler logging.handlers.SocketHandler logging.handlers.DatagramHandler "
     "logging.handlers.SysLogHandler", _log_to_host),
    ("socket.gethostbyname socket.getaddrinfo socket.gethostbyname_ex dns.resolve dns.lookup "
     "dns.resolver.resolve dns.resolver.query dns.promises.resolve", _resolve),
    ("http.client.HTTPSConnection http.client.HTTPConnection", _connect),
    ("connection.request", _request_by_connection),
    ("wget.download", _download),
    ("open io.open codecs.open aiofiles.open", _open),
    ("sqlite3.connect aiosqlite.connect", _database),
    ("os.getenv os.environ.get environ.get getenv os.environ.pop os.environb.get "
     "Deno.env.get", _variable),
    ("os.path.expanduser os.path.expandvars os.path.abspath os.path.realpath os.path.normpath "
     "path.resolve", _expand),
    ("Path.home pathlib.Path.home os.homedir homedir os.path.expanduser()", _home),
    ("os.path.join path.join path.posix.join Path pathlib.Path PurePath join", _path_join),
    ("glob.glob glob.iglob os.listdir os.scandir os.walk", _glob),
    ("shutil.copy shutil.copy2 shutil.copyfile shutil.move shutil.copytree os.rename "
    "fs.copyFileSync", _copy),
    ("shutil.rmtree os.remove os.unlink fs.rmSync fs.rmdirSync fs.unlinkSync", _remove),
    ("keyring.get_password win32crypt.CryptUnprotectData", _secret),
    ("base64.b64decode base64.urlsafe_b64decode base64.standard_b64decode base64.decodebytes "
     "b64decode atob binascii.a2b_base64", _decoder("base64")),
    ("base64.b32decode b32decode", _decoder("base32")),
    ("base64.b85decode b85decode", _decoder("base85")),
    ("base64.a85decode a85decode", _decoder("ascii85")),
    ("bytes.fromhex bytearray.fromhex binascii.unhexlify unhexlify", _decoder("hex")),
    ("zlib.decompress gzip.decompress bz2.decompress lzma.decompress zlib.inflateSync "
     "zlib.gunzipSync", _decoder("gzip")),
    ("codecs.decode codecs.encode", _codec),
    ("pyautogui.screenshot ImageGrab.grab PIL.ImageGrab.grab mss.mss pyscreenshot.grab "
     "pyperclip.paste", _screen),
    ("keyboard.on_press keyboard.hook pynput.keyboard.Listener keyboard.Listener", _keys),
    ("fs.readFileSync fs.readFile fs.promises.readFile readFileSync readFile fs.createReadStream "
     "Bun.file Deno.readTextFile Deno.readTextFileSync", _read_first),
    ("fs.writeFileSync fs.writeFile fs.appendFileSync fs.appendFile fs.promises.writeFile "
     "writeFileSync appendFileSync writeFile Deno.writeTextFile", _write_first),
)  # fmt: skip
_METHODS: dict[str, Judge] = _rows(
    ("read_text read_bytes read readlines readline", _read_owner),
    ("write_text write_bytes", _write_owner),
    ("unlink rmtree", _remove),
    ("write writelines", _write_open),
    ("connect", _socket),
    ("send sendall sendto sendmail send_message storbinary upload_file upload_fileobj put_object "
     "sendBeacon", _send),
    ("glob rglob", _glob),
    ("debug info warning error critical exception", _log),
    ("load_extension dlopen", _load_library),
    ("decode", _codec),
    ("encrypt", _encrypt),
    ("expanduser resolve absolute", lambda call, ledger: call.owner._replace(name="")),
    ("joinpath", lambda call, ledger: _path_join(
        call._replace(positional=(call.owner, *call.positional)), ledger)),
)  # fmt: skip
_STARTS = frozenset(
    ("run", "call", "Popen", "check_call", "check_output", "spawn", "spawnSync", "execFile",
     "execFileSync", "exec", "execSync", "fork")
)  # fmt: skip
_POWERS = frozenset((_code, _shell, _process, _request, _fetch, _socket))
