"""Find the hosts in a text, and those that hide their owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address
from typing import Literal
from urllib.parse import unquote

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

# Stands in a text for a part that is not known before a run.
HOLE = "\ufffc"

HostClass = Literal["", "drop", "tunnel", "address", "short", "own", "hosting"]

# Services where anyone can receive, read or serve a text anonymously.
_DROPS = """
webhook.site requestbin.com requestbin.net pipedream.net hookbin.com requestcatcher.com
beeceptor.com interact.sh oast.fun oast.live oast.site oast.online oast.pro oast.me
burpcollaborator.net canarytokens.com dnslog.cn ceye.io postb.in webhook-test.com
pastebin.com paste.ee ghostbin.com hastebin.com rentry.co rentry.org dpaste.com dpaste.org
glot.io termbin.com ix.io sprunge.us 0x0.st transfer.sh file.io anonfiles.com gofile.io
catbox.moe litterbox.catbox.moe temp.sh bashupload.com oshi.at controlc.com pastes.io
privatebin.net justpaste.it textbin.net write.as telegra.ph ttm.sh pixeldrain.com
uguu.se tmpfiles.org filebin.net wetransfer.com anonymfile.com bayfiles.com
api.telegram.org discord.com/api/webhooks discordapp.com/api/webhooks
"""
_TUNNELS = """
ngrok.io ngrok.app ngrok-free.app ngrok-free.dev ngrok.dev loca.lt localtunnel.me serveo.net
trycloudflare.com localhost.run lhr.life bore.pub pagekite.me playit.gg tunnelto.dev
duckdns.org no-ip.org no-ip.com noip.com ddns.net hopto.org zapto.org sytes.net myftp.org
dynu.net dynu.com freedns.afraid.org chickenkiller.com servehttp.com redirectme.net 3utilities.com
onion onion.to onion.ly nip.io sslip.io
"""
_SHORT = """
bit.ly tinyurl.com goo.gl is.gd v.gd t.ly cutt.ly rb.gy shorturl.at ow.ly buff.ly rebrand.ly
tiny.cc soo.gd s.id clck.ru
"""
# Services where anyone can start a server in a minute, under a meaningless name.
_HOSTING = """
onrender.com herokuapp.com vercel.app netlify.app workers.dev pages.dev glitch.me repl.co replit.app
replit.dev fly.dev railway.app deno.dev surge.sh web.app firebaseapp.com azurewebsites.net
cloudfunctions.net run.app on.aws amplifyapp.com pythonanywhere.com 000webhostapp.com
infinityfreeapp.com koyeb.app cyclic.app ondigitalocean.app gradio.live modal.run
"""
# Hosts of widely used install scripts; a fetch from any other host needs a question.
_INSTALLERS = """
astral.sh bun.sh bun.com deno.land sh.rustup.rs rustup.rs get.docker.com sdkman.io get.sdkman.io
install.python-poetry.org get.pnpm.io fnm.vercel.app cli.github.com nodejs.org deb.nodesource.com
rpm.nodesource.com get.k3s.io raw.githubusercontent.com github.com gist.github.com get.helm.sh
brew.sh ollama.com ollama.ai claude.ai opencode.ai install.duckdb.org get.volta.sh
foundry.paradigm.xyz starship.rs mise.run mise.jdx.dev get.starkli.sh tailscale.com fly.io
install.determinate.systems nixos.org get.nextflow.io micro.mamba.pm apt.llvm.org dl.cloudsmith.io
sentry.io cli.sentry.dev supabase.com dl.google.com sdk.cloud.google.com packages.cloud.google.com
get.scoop.sh community.chocolatey.org aspire.dev public.cdn.getdbt.com elastic.co apollo.dev
aka.ms download.pytorch.org releases.hashicorp.com get.pulumi.com cursor.com windsurf.com
"""
# As part of a pattern: a host that hides its owner.
ANONYMOUS = (
    r"(?:[\w-]{1,60}\.){0,4}(?:"
    + "|".join(re.escape(one) for one in f"{_HOSTING} {_DROPS} {_SHORT} github.io".split())
    + r")\b"
)
_TESTING = frozenset(("localhost", "example.com", "example.org", "example.net"))
_NO_HOST = frozenset(("md", "py", "js", "ts", "json", "sh", "txt", "html", "css", "yaml", "yml"))
_SCHEMES = r"\b(?:https?|wss?|ftps?|tcp|udp|stratum\+tcp|socks5|hxxps?|ssh|git)"
_LONGEST_SCHEME = 12
_SCHEME = Lazy(rf"(?i){_SCHEMES}\Z")
_URL = Lazy(
    rf"(?i){_SCHEMES}://"
    r"(?:[^\s/@\"'<>`]{1,80}@)?(?P<host>\[[0-9a-f:]{2,45}\]|[^\s/:?#\"'<>`|\\)\]},;]{1,253})"
    r"(?P<port>:\d{1,5})?(?P<path>/[^\s\"'<>`|)\]}]{0,200})?"
)
_BARE = Lazy(r"(?<![\w@./-])((?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24})(/[^\s\"'<>`|)]{0,100})?")
_ADDRESS = Lazy(r"(?<![\w.-])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.-])")
_ODD_ADDRESS = Lazy(r"(?:0x[0-9a-f]{1,8}|0[0-7]{1,11}|\d{8,10})(?:\.(?:0x[0-9a-f]+|\d+)){0,3}\Z")


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DROP_NAMES, _TUNNEL_NAMES = _split_names(_DROPS), _split_names(_TUNNELS)
_SHORT_NAMES, _INSTALLER_NAMES = _split_names(_SHORT), _split_names(_INSTALLERS)
_HOSTING_NAMES = _split_names(_HOSTING)


class FoundUrl(NamedTuple):
    """An address in a text: its host in its usual spelling, its path, and where it stands."""

    host: str
    path: str
    at: int
    scheme: str = "https"


def find_urls(text: str, most: int = 500) -> Iterator[FoundUrl]:
    """Yield the addresses of a text with a scheme, at most `most`."""
    for number, match in enumerate(_find_addresses(text)):
        if number >= most:
            return
        host = clean_host(match["host"])
        if host:
            scheme = match[0].partition(":")[0].lower()
            yield FoundUrl(host, match["path"] or "", match.start(), scheme)


def _find_addresses(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of the pattern for addresses; the sign inside each is found faster."""
    after, at = 0, text.find("://")
    while at >= 0:
        scheme = _SCHEME.search(text, max(after, at - _LONGEST_SCHEME), at)
        match = scheme and _URL.match(text, scheme.start())
        if match:
            yield match
            after = match.end()
        at = text.find("://", max(after, at + 3))


def host_in(text: str) -> FoundUrl | None:
    """Return the first address of a text; one without a scheme counts as an argument does."""
    for found in find_urls(text, 1):
        return found
    bare = _ADDRESS.search(text) or _BARE.search(text.lower())
    if bare is None or bare[1].rpartition(".")[2] in _NO_HOST:
        return None
    path = bare[2] if bare.re is _BARE else ""
    return FoundUrl(clean_host(bare[1]), path or "", bare.start(), "")


def clean_host(text: str) -> str:
    """Return a host in its normal form: lower case, without brackets and other disguises."""
    host = unquote(text).lower().replace("[.]", ".").replace("(.)", ".").strip(".[](){}*_'\"")
    try:
        host = host if host.isascii() else host.replace(HOLE, "-").encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    return host if re.fullmatch(r"[a-z0-9.:_-]{1,253}", host.replace(HOLE, "-")) else ""


def classify(host: str, path: str = "") -> HostClass:
    """Return how a host hides its owner; "" if it does not."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0", "::1") or host.endswith(".localhost"):
        return "own"
    address = _is_public_address(host)
    if address is not None:
        return "address" if address else "own"
    for name in _list_parents(host):
        if name in _DROP_NAMES or _is_webhook(name, path):
            return "drop"
        if name in _TUNNEL_NAMES:
            return "tunnel"
        if name in _SHORT_NAMES:
            return "short"
        if name in _HOSTING_NAMES:
            return "hosting"
    return ""


def _is_webhook(name: str, path: str) -> bool:
    return name in ("discord.com", "discordapp.com") and path.startswith("/api/webhooks")


def _is_public_address(host: str) -> bool | None:
    """Whether a host is an address that anyone on the network may have; None if it is a name."""
    if _ODD_ADDRESS.match(host):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv4Address) and str(address).startswith(("192.0.2.", "198.51.100.")):
        return True  # reserved for documentation; examples of attacks use it
    return not (address.is_private or address.is_loopback or address.is_link_local)


def _list_parents(host: str) -> Iterator[str]:
    labels = host.split(".")
    for start in range(max(len(labels) - 4, 0), len(labels)):
        yield ".".join(labels[start:])


def is_installer(host: str) -> bool:
    """Whether many well-known instructions run what this host sends."""
    return any(name in _INSTALLER_NAMES for name in _list_parents(host))


# Hosts where anyone can publish a program, and what stands before the name of the publisher.
_SHARED_HOSTS = {
    "github.com": "", "raw.githubusercontent.com": "", "gist.githubusercontent.com": "",
    "gist.github.com": "", "codeload.github.com": "", "api.github.com": "repos/",
    "objects.githubusercontent.com": "", "deno.land": "x/", "dl.cloudsmith.io": "public/",
    "github.io": "",
}  # fmt: skip
# Publishers there whose programs very many people install.
_PUBLISHERS = _split_names(
    """
actions anchore angular anthropics apache apple aquasecurity argoproj asdf-vm astral-sh
astronomer aws awslabs azure bazelbuild biomejs bufbuild burntsushi cilium cli cloudflare coder
conda conda-forge containerd containers databricks datadog dbt-labs denoland devcontainers
digitalocean direnv docker dotnet elastic emscripten-core expo facebook fastlane ffmpeg flutter
fluxcd getsentry getsops gitleaks go-task golang golangci google google-gemini googleapis
googlecloudplatform goreleaser gradle grafana hadolint hashicorp helm homebrew huggingface ibm
istio j178 jdx jqlang junegunn k3s-io koalaman kubernetes kubernetes-sigs langchain-ai linuxbrew
llvm localstack mamba-org microsoft mikefarah minio mitmproxy moby modelcontextprotocol mozilla
nektos neovim netlify nextflow-io nixos nodejs nodesource nvidia nvm-sh ohmyzsh ollama
open-policy-agent openai opencontainers oven-sh pantsbuild pnpm pre-commit prometheus
protocolbuffers pulumi puppeteer pyenv pypa python python-poetry pytorch quarto-dev rancher
rbenv redis ruby rust-lang semgrep sharkdp sigstore snyk spack stedolan stripe supabase
tailscale tektoncd tensorflow traefik trailofbits trufflesecurity typst vercel vercel-labs
volta-cli yarnpkg yt-dlp ytdl-org zsh-users
"""
)


def publisher_of(host: str, path: str) -> str | None:
    """Return who publishes at an address where anyone can; None for a host of one publisher."""
    for name in _list_parents(host):
        before = _SHARED_HOSTS.get(name)
        if before is not None and (host == name or name == "github.io"):
            if name == "github.io":
                return host.split(".")[-3] if host.count(".") > 1 else ""
            rest = path.lstrip("/")
            if not rest.startswith(before):
                return None
            return rest.removeprefix(before).partition("/")[0].lower()
    return None


def is_widely_used(publisher: str) -> bool:
    """Whether very many people install programs of a publisher."""
    return publisher in _PUBLISHERS


# Services that many skills send to, and whose name says who they are.
_KNOWN = """
openai.com anthropic.com googleapis.com google.com github.com githubusercontent.com gitlab.com
microsoft.com azure.com amazonaws.com slack.com notion.com huggingface.co replicate.com stripe.com
cloudflare.com vercel.com nvidia.com atlassian.net linear.app figma.com airtable.com telegram.org
azureml.ms discord.com elevenlabs.io deepgram.com assemblyai.com groq.com mistral.ai openrouter.ai
"""
_KNOWN_NAMES = _split_names(_KNOWN)


def is_known(host: str) -> bool:
    """Whether a host belongs to a service that everyone knows."""
    return is_installer(host) or any(name in _KNOWN_NAMES for name in _list_parents(host))


def is_of_models(host: str) -> bool:
    """Whether a host belongs to a service whose models answer to what they are sent."""
    return any(name in _MODEL_HOSTS for name in _list_parents(host))


def is_module_host(host: str) -> bool:
    """Whether programs in JavaScript usually fetch modules from this host."""
    return any(name in _MODULE_HOSTS for name in _list_parents(host))


_MODULE_HOSTS = _split_names(
    "deno.land esm.sh esm.run unpkg.com jsdelivr.net skypack.dev jsr.io jspm.io jspm.dev cdnjs.com"
    " cdnjs.cloudflare.com nest.land gstatic.com pyodide.org"
)
_MODEL_HOSTS = _split_names(
    "openai.com anthropic.com generativelanguage.googleapis.com mistral.ai groq.com openrouter.ai"
    " huggingface.co"
)


def is_reserved(host: str) -> bool:
    """Whether the host is one that examples use."""
    return host in _TESTING or any(name in _TESTING for name in _list_parents(host))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a host, of a variable or of a skill's name, to compare them."""
    return frozenset(word for word in re.split(r"[^a-z0-9]+", text.lower()) if len(word) > 2)
