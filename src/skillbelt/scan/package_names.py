"""Packages that a command or a file installs: known bad names, look-alikes, other sources.

Nothing is looked up. The table of popular names is short on purpose: names are copied where many
people mistype them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from skillbelt.scan.addresses import classify, host_in
from skillbelt.scan.ledger import Ledger
from skillbelt.text import Lazy, one_line

_PYTHON = """
requests urllib3 numpy pandas scipy matplotlib scikit-learn tensorflow torch keras transformers
flask django fastapi uvicorn starlette pydantic sqlalchemy boto3 botocore cryptography paramiko
beautifulsoup4 selenium pillow opencv-python pyyaml setuptools wheel certifi idna chardet colorama
python-dateutil pytest click jinja2 httpx aiohttp openai anthropic langchain playwright pypdf
python-docx openpyxl python-pptx psycopg2 redis celery tqdm rich typer pyinstaller discord.py
web3 solana ccxt pycryptodome streamlit gradio huggingface-hub tiktoken markitdown reportlab
pdfplumber docker kubernetes protobuf grpcio websockets ipython jupyter notebook
"""
_NODE = """
react react-dom lodash express axios chalk commander debug moment webpack typescript eslint
prettier next vue angular jquery electron puppeteer playwright cross-env dotenv mongoose
nodemailer socket.io uuid ethers web3 discord.js node-fetch request async bluebird underscore
cheerio jsonwebtoken bcrypt sharp ws yargs inquirer rimraf glob semver vite esbuild tailwindcss
zod prisma openai docx pptxgenjs nodemon mocha jest babel-core fs-extra cross-spawn
"""
# Published as malware and reported by the registries or by researchers.
_BAD = """
python3-dateutil jeilyfish colourama python-sqlite libpeshnx setup-tools pytz3-dev acqusition
apidev-coop  urlib3  djanga djago easyinstall pyscrapy  diango crossenv cross-env.js
d3.js fabric-js ffmepg gruntcli http-proxy.js jquery.js  mongose mssql.js mssql-node
mysqljs nodecaffe nodefabric node-fabric nodeffmpeg nodemailer-js nodemailer.js nodemssql
node-opencv node-opensl  noderequest nodesass nodesqlite node-sqlite node-tkinter
opencv.js openssl.js proxy.js shadowsock  sqlite.js sqliter   eslint-scope-util
flatmap-stream getcookies  electron-native-notify  loadyaml
 discordpydebug beautifulsup4 request5 requessts reqeusts requets requestss
tensorfiow  torchtriton   colorsama ascii2text pyg-utils pymocks pyproto2
noblesse genesisbot aryi  pptest ipboards owlmoon dpp-client aws-login0tool web3-essential
"""
_PAIRS = (("0", "o"), ("1", "l"), ("rn", "m"), ("vv", "w"), ("5", "s"), ("3", "e"), ("_", "-"))
_NAME = Lazy(r"@?[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?")
_INSTALLS = {
    "pip": ("install", "download"), "pipx": ("install", "run"), "uv": ("add", "install"),
    "uvx": (), "npx": (), "bunx": (), "npm": ("install", "i", "add", "ci", "exec"),
    "pnpm": ("install", "i", "add", "dlx"), "yarn": ("add", "dlx"), "gem": ("install",),
    "cargo": ("install", "add"), "go": ("install", "get"), "brew": ("install",),
    "poetry": ("add",), "conda": ("install",),
}  # fmt: skip
_PYTHON_TOOLS = frozenset(("pip", "pipx", "uv", "uvx", "poetry", "conda"))
_NODE_TOOLS = frozenset(("npm", "npx", "pnpm", "yarn", "bunx"))
_VALUED = frozenset(
    ("-r", "--requirement", "-c", "--constraint", "-i", "--index-url", "--extra-index-url",
     "--registry", "-t", "--target", "--prefix", "-f", "--find-links", "--python", "-p", "--from",
     "--with", "-w", "--workspace", "--group", "-e", "--package", "--features", "--git")
)  # fmt: skip
_OTHER_INDEX = Lazy(r"(?:-i|--index-url|--extra-index-url|--registry|-f|--find-links)[= ](\S+)")
_USUAL_INDEX = Lazy(
    r"(?:^|\.)(?:pypi\.\w+|pythonhosted\.\w+|npmjs\.\w+|yarnpkg\.com|pytorch\.org|nvidia\.com"
    r"|npmmirror\.com"
    r"|rubygems\.\w+|pkg\.github\.com|pkg\.dev|amazonaws\.com|azure\.com|visualstudio\.com"
    r"|jfrog\.io|aliyun\.com|tsinghua\.edu\.cn)$"
)
_KNOWN_PYTHON, _KNOWN_NODE = frozenset(_PYTHON.split()), frozenset(_NODE.split())
_KNOWN_BAD = frozenset(_BAD.split())
_LEAST_LETTERS = 5


def judge_packages(tool: str, words: Sequence[str], line: int, ledger: Ledger) -> None:
    """Note the packages that a command installs, and what is wrong with their names."""
    name = re.sub(r"[0-9.]+$", "", tool)
    starts = _INSTALLS.get(name)
    if starts is None:
        return
    rest = list(words)
    if starts:
        at = next((n for n, word in enumerate(rest) if word in starts), -1)
        if at < 0 or at > 2:
            return
        rest = rest[at + 1 :]
    _judge_index(" ".join(words), line, ledger)
    for word in _names(rest, only_first=not starts):
        judge_package(name, word, line, ledger)


def _judge_index(text: str, line: int, ledger: Ledger) -> None:
    for match in _OTHER_INDEX.finditer(text):
        found = host_in(match[1])
        if found is not None and not _USUAL_INDEX.search(found.host):
            own = classify(found.host) == "own"
            ledger.find("package-elsewhere", line, match[0], "note" if own else None)


def _names(words: Sequence[str], *, only_first: bool) -> list[str]:
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _VALUED
        elif word not in (".", "..") and not word.startswith(("./", "../", "/", "~", "$")):
            found.append(word)
            if only_first:
                break
    return found[:50]


def judge_package(tool: str, word: str, line: int, ledger: Ledger) -> None:
    """Note one package by its name as it is written, with its version."""
    if "://" in word or word.startswith("git+") or word.endswith((".whl", ".tgz")):
        found = host_in(word)
        host = found.host if found else ""
        usual = host in ("github.com", "gitlab.com", "bitbucket.org", "codeload.github.com")
        ledger.can("package", word, line)
        ledger.find("package-elsewhere", line, word, "note" if usual or not host else None)
        return
    match = _NAME.match(word)
    if match is None:
        return
    name = match[0].rstrip(".-").lower()
    ledger.can("package", one_line(word), line)
    kinds = "python" if tool in _PYTHON_TOOLS else "node" if tool in _NODE_TOOLS else ""
    if name in _KNOWN_BAD and kinds:
        ledger.find("package-known-bad", line, name)
    elif kinds and (meant := lookalike(kinds, name)):
        ledger.find("package-lookalike", line, f"{name}, like {meant}")


@lru_cache(maxsize=4096)
def lookalike(kind: str, name: str) -> str:
    """Return the well-known package that a name imitates; "" if it imitates none."""
    known = _KNOWN_PYTHON if kind == "python" else _KNOWN_NODE
    if name in known or name in _KNOWN_PYTHON or name in _KNOWN_NODE:
        return ""
    folded = _fold(name)
    for popular in known:
        if len(popular) < _LEAST_LETTERS or abs(len(popular) - len(name)) > 1:
            continue
        if folded == _fold(popular) or is_one_slip(name, popular):
            return "" if _is_honest_variant(name, popular) else popular
    return ""


def _fold(name: str) -> str:
    for seen, meant in _PAIRS:
        name = name.replace(seen, meant)
    return name.replace("-", "").replace(".", "")


_HONEST = frozenset(
    ("preact", "pytest8", "axios2", "tslint", "flasks", "pandasql", "rich2", "click8", "typers",
     "chalk2", "vitest", "vue3", "next2", "jinja", "nuxt", "redis2", "tornado", "panda", "request",
     "requests2", "lodash4", "dockerc", "pypdf2", "pypdf3", "psycopg", "psycopg3", "numpy2",
     "jest2",
     "pydantic2", "httpx2", "httpxs", "torch2", "torchs", "keras3", "glob2", "globs", "tabler",
     "langchain4", "prisma2", "celery2", "sharps", "express4", "mocha2", "web3py", "reacts")
)  # fmt: skip


def _is_honest_variant(name: str, popular: str) -> bool:
    """Whether the name is that of an honest package: a later version, or one of this list."""
    later = name.startswith(popular) and name[len(popular) :].strip("-_.").isdigit()
    return later or name in _HONEST or name.replace("_", "-") == popular


def is_one_slip(name: str, other: str) -> bool:
    """Whether one letter is added, lost, changed or swapped between two names."""
    if name == other or abs(len(name) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    a, b = name[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
