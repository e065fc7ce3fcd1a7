"""Find settings that give rights away, take packages from elsewhere, or start programs.

They stand in any file: a rule of sudo under another name, an override of containers, an environment
file, a template, a script for a database. Each form is looked for only in a text with its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from posixpath import basename, splitext

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import classify, clean_host, is_known, is_reserved, words_of
from skillbelt.scan.ledger import Ledger, is_secret_name
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.values import FindingKind
from skillbelt.text import Lazy
from skillbelt.untrusted_json import read_json


class _Form(NamedTuple):
    rule: str
    kind: FindingKind
    needs: tuple[str, ...]
    form: re.Pattern[str]


def _form(rule: str, kind: FindingKind, needs: str, form: str) -> _Form:
    return _Form(rule, kind, tuple(needs.split()), Lazy(form))


_HOME = (
    r"(?:~|\$\{?(?:(?:local)?[eE]nv:)?(?:HOME|USERPROFILE)(?::-[^}\n]{0,40})?\}?|/root|/home(?:/"
    r"[\w$\{\}]"
    r"{1,40})?|/Users(?:/[\w$\{\}]{1,40})?|[cC]:[\\/]{1,2}Users(?:[\\/]{1,2}[\w%]{1,40})?)"
)
# What a text has in lower case, and the form; no key of one word alone is enough.
_FORMS = (
    # Rights
    _form("privilege", "ask", "nopasswd",
          r"(?m)^[^#\n]{0,200}=[ \t]{0,9}(?:\([\w:, *]{1,80}\))?[ \t]{0,9}(?:\w{1,20}:"
          r"[ \t]{0,9}){0,4}"
          r"NOPASSWD[ \t]{0,9}:"),
    _form("privilege", "ask", "!authenticate", r"(?m)^[ \t]{0,9}Defaults[^\n]{0,80}!authenticate"),
    _form("privilege", "ask", "permit", r"(?m)^[ \t]{0,9}permit[ \t]{1,9}(?:\w{1,20}[ \t]{1,9})"
          r"{0,3}?nopass\b"),
    _form("privilege", "ask", "polkit.result", r"polkit\.Result\.YES"),
    _form("privilege", "ask", "resultany=yes resultactive=yes", r"Result(?:Any|Active)=yes"),
    _form("privilege", "ask", "permitrootlogin permitemptypasswords",
          r"(?m)^[ \t]{0,9}(?:PermitRootLogin[ \t]{1,9}yes|PermitEmptyPasswords[ \t]{1,9}yes)"),
    _form("privilege", "ask", "pam_permit",
          r"(?m)^[ \t]{0,9}auth[ \t]{1,9}(?:sufficient|required)[ \t]{1,9}pam_permit\.so"),
    _form("privilege", "ask", "cap_add sys_admin",
          r"(?m)cap_add:\s{0,40}(?:\[[^\]\n]{0,80})?(?:-[ \t]{1,9})?[\"']?(?:ALL|SYS_ADMIN"
          r"|SYS_MODULE)\b"),
    # The home of the user in a container
    _form("credential-access", "ask", "source= source:",
          rf"\bsource[=:][ \t]{{0,9}}[\"']?{_HOME}/?[\"']?[ \t]{{0,9}}(?:,|\n|\Z)"),
    _form("credential-access", "ask", "volume mount",
          rf"(?m)^[^#\n]{{0,80}}?(?:-[ \t]{{1,9}}|[\[,][ \t]{{0,9}})[\"']?{_HOME}/?:/"
          rf"[\w./-]{{0,60}}(?::r[wo])?"
          r"[\"']?[ \t]{0,9}(?:[,\]]|$)"),
    _form("credential-access", "ask", "hostpath",
          r"(?m)hostPath:\s{0,99}(?:path:[ \t]{0,9})?[\"']?/(?:root|home|Users)[\"'/]?[ \t]{0,9}$"),
    # What starts with any program
    _form("persistence", "ask", "ld_preload dyld_insert bash_env pythonstartup perl5opt rubyopt "
          "node_options java_tool_options prompt_command git_ssh_command",
          r"(?m)^[ \t]{0,9}(?:-[ \t]{1,9}|export[ \t]{1,9}|[\"'])?(?:LD_PRELOAD"
          r"|DYLD_INSERT_LIBRARIES|BASH_ENV"
          r"|PYTHONSTARTUP|PROMPT_COMMAND|GIT_SSH_COMMAND|(?:PERL5OPT|RUBYOPT)(?=[\"']?[ \t]{0,3}"
          r"[=:][^\n]"
          r"{0,60}-[rMI])|NODE_OPTIONS(?=[\"']?[ \t]{0,3}[=:][^\n]{0,80}--(?:require|import|loader"
          r"|r\b"
          r"|experimental-loader))|JAVA_TOOL_OPTIONS(?=[\"']?[ \t]{0,3}[=:][^\n]{0,80}-(?:javaagent"
          r"|agentpath)))[\"']?[ \t]{0,3}[=:][ \t]{0,3}[^\s,]"),
    # Crontab lines and tasks at the start
    _form("persistence", "ask", "@reboot", r"(?m)^[ \t]{0,9}@reboot[ \t]{1,9}\S"),
    _form("persistence", "note", "runatload", r"<key>RunAtLoad</key>\s{0,40}<true/>"),
    # Questions that are switched off for an agent
    _form("guard-off", "ask", "bypasspermissions",
          r"[\"']?(?:defaultMode|permissionMode)[\"']?[ \t]{0,9}[:=][ \t]{0,9}"
          r"[\"']bypassPermissions"),
    _form("guard-off", "ask", "dangerously", r"\"dangerouslySkipPermissions\"[ \t]{0,9}:"
    r"[ \t]{0,9}true"),
    _form("guard-off", "ask", "danger-full-access",
          r"(?m)^[ \t]{0,9}[\"']?sandbox_mode[\"']?[ \t]{0,9}[:=][ \t]{0,9}"
          r"[\"']danger-full-access"),
    _form("guard-off", "ask", "enableallprojectmcpservers",
          r"\"enableAllProjectMcpServers\"[ \t]{0,9}:[ \t]{0,9}true"),
    _form("guard-off", "ask", "autoapprove alwaysallow",
          r"\"[\w.]{0,40}(?:[aA]utoApprove|[aA]lwaysAllow)\w{0,20}\"[ \t]{0,9}:\s{0,40}(?:true"
          r"|\[\s{0,40}\"\*\""
          r"|\[[^\]]{0,600}\"\w{0,40}(?:exec|shell|run|write|delete|send|command|bash"
          r"|eval)\w{0,40}\")"),
    _form("guard-off", "ask", '"allow"',
          r"\"allow\"[ \t]{0,9}:\s{0,40}\[[^\]]{0,600}?\"(?:Bash(?:\(\*?(?::\*)?\))?|\*)\""),
    _form("guard-off", "ask", '"trust"',
          r"\"trust\"[ \t]{0,9}:[ \t]{0,9}true[\s\S]{0,300}\"(?:command|url|httpUrl)\"|\""
          r"(?:command|url|httpUrl)"
          r"\"[^{}]{0,400}\"trust\"[ \t]{0,9}:[ \t]{0,9}true"),
    _form("data-to-unknown-host", "ask", '"hooks"',
          r"\"(?:command|bash|powershell)\"\s{0,9}:\s{0,9}\"[^\"\n]{0,300}\b(?:curl|wget|nc|ncat"
          r"|Invoke-(?:WebRequest|RestMethod))\b[^\"\n]{0,300}?(?:https?://|\w\.[a-z]{2,})"),
    # Programs that a database runs, and files that it writes
    _form("database-command", "ask", "program",
          r"(?i)\bcopy\b[^;]{0,300}?\b(?:to|from)\s{1,9}program\s{1,9}(?:'(?!\s{0,9}(?:gunzip|zcat"
          r"|gzip|cat|unzip"
          r"|xz|xzcat|bzip2|bzcat|zstd|lz4|head|tail|cut|sed|split|pigz|tar|iconv|tr|sort|awk)\b"
          r"[^'|;&$`]"
          r"{0,200}')|[^'\s])"),
    _form("database-command", "ask", "execute",
          r"(?i)\bexecute\s{1,9}(?:immediate\s{1,9})?(?:format\s{0,3}\()?[^;]{0,120}\b(?:program"
          r"|xp_cmdshell|plpython"
          r"\w{0,3}u)\b"),
    _form("database-command", "ask", "xp_cmdshell sp_oacreate sys_exec sys_eval xp_dirtree "
          "sp_execute_external_script",
          r"(?i)\b(?:exec(?:ute)?\s{1,9}(?:master\s{0,3}\.{1,2}\s{0,3}(?:dbo\.)?)?|select\s{1,9}"
          r"|sp_configure\s{1,9}"
          r"'|call\s{1,9})(?:xp_cmdshell|sp_oacreate|sys_exec|sys_eval|xp_dirtree"
          r"|sp_execute_external_script)\b"),
    _form("database-command", "ask", "outfile dumpfile", r"(?i)\binto\s{1,9}(?:outfile"
    r"|dumpfile)\s{1,9}'"
          r"[^'\n]{0,100}(?:/etc/|/home|/root|~|www|htdocs|\.ssh|cron|\.php|\.sh|\.jsp)"),
    _form("database-command", "ask", "plpython plperlu pltclu plsh",
          r"(?i)\blanguage\s{1,9}'?(?:plpython[23]?u|plperlu|pltclu|plsh)\b"),
    _form("database-command", "ask", r"\! .shell .system", r"(?m)^[ \t]{0,9}(?:\\!|\.(?:shell"
    r"|system))"
          r"[ \t]{1,9}\S"),
    _form("database-command", "ask", "dbms_scheduler", r"(?i)dbms_scheduler\b"
    r"[\s\S]{0,400}?'executable'"),
    _form("database-command", "ask", "pg_read lo_import load_file pg_ls_dir readfile read_text "
                                     "load_extension",
          r"(?i)\b(?:pg_read_(?:binary_)?file|lo_import|load_file|pg_ls_dir|readfile|read_text"
          r"|load_extension)"
          r"\s{0,3}\(\s{0,9}(?:e)?'[^'\n]{0,80}(?:/etc/|/home/|/root/|~|\.ssh|\.aws|passw|https?:"
          r"|/tmp/|\.env\b)"),
    _form("database-command", "ask", "install attach copy insert",
          r"(?i)\b(?:force\s{1,9})?install\s{1,9}\w{1,40}\s{1,9}from\s{1,9}'https?://"
          r"|\bcopy\b[^;]{0,200}\bto\s{1,9}'https?://|\binsert\s{1,9}into\s{1,9}"
          r"(?:table\s{1,9})?function\s{1,9}"
          r"(?:url|remote|s3)\s{0,3}\("),
    # Templates that reach what runs programs
    _form("dynamic-code", "ask", "__globals__ __subclasses__ __builtins__ __import__ __init__ "
                                 "__mro__ __class__ __base__",
          r"\{[{%][^\n]{0,200}\b__(?:globals|subclasses|builtins|import|init|mro|class|base)__"),
    _form("dynamic-code", "ask", "<%", r"<%[=!-]?\s{0,40}[^%\n]{0,200}?(?:`[^`\n]{2,200}`"
                                       r"|\bsystem\s{0,3}\(|%x[\[{(]"
          r"|IO\.popen|Net::HTTP|\bKernel\b|child_process|\brequire\(\s{0,3}['\"](?:child_process"
          r"|fs|http)"
          r"|\bimport (?:os|subprocess|urllib|socket)\b|Runtime\.getRuntime|\beval\s{0,3}\()"),
    _form("dynamic-code", "ask", "freemarker.template.utility registerundefined "
          ".constructor( getclass().forname",
          r"freemarker\.template\.utility\.(?:Execute|ObjectConstructor)"
          r"|registerUndefined\w{1,20}Callback"
          r"|\{\{[^}\n]{0,200}\.constructor\(|getClass\(\)\.forName"),
)  # fmt: skip

_NEEDED = tuple(dict.fromkeys(word for one in _FORMS for word in one.needs))
_NEEDED_OF_RIGHTS = tuple(
    dict.fromkeys(word for one in _FORMS if one.rule == "privilege" for word in one.needs)
)
# By their ending.
_USUAL_HOSTS = frozenset(
    f"{name}.{ending}"
    for ending, names in {
        "org": "npmjs pypi pythonhosted pytorch maven apache gradle sonatype rubygems golang "
        "anaconda nuget packagist clojars cocoapods cran.r-project bioconductor haskell "
        "opam.ocaml cpan deb.debian debian fedoraproject archlinux alpinelinux conda- "
        "forge repo1.maven r-project mozilla codeberg linuxfoundation mulesoft",
        "com": "npmjs yarnpkg nvidia npmmirror maven.google sonatype anaconda aliyun tencent "
        "huaweicloud hf-mirror microsoft jetbrains amazonaws azure gitlab github "
        "googleapis google mcr.microsoft rstudio npm.pkg.github pkg.github shopify intel "
        "amd ubuntu cdn.npmmirror docker redhat gitea snowflake databricks cloudera "
        "hortonworks clever-cloud liferay",
        "dev": "pkg r-universe pub flutter prefix expo elastic dart",
        "io": "jsr jitpack crates goproxy confluent spring gcr docker quay k8s ghcr nvcr "
        "xrepo.xmake redhat artifacthub",
        "cn": "goproxy tsinghua.edu ustc.edu",
        "net": "azureedge",
        "space": "jetbrains",
        "co": "elastic posit",
        "pm": "hex",
        "build": "buf",
    }.items()
    for name in names.split()
)
# Where a program takes packages or binaries from.
_REGISTRY = Lazy(
    r"(?m)(?:^[ \t]{0,9}(?:export[ \t]{1,9}|ENV[ \t]{1,9}|-[ \t]{1,9})?[\"']?(?:GOPROXY|GEM_SOURCE"
    r"|BUNDLE_MIRROR\w{0,40}"
    r"|PIP_(?:EXTRA_)?INDEX_URL|PIP_FIND_LINKS|UV_\w{0,20}INDEX\w{0,10}|UV_FIND_LINKS"
    r"|POETRY_REPOSITORIES_\w{1,40}_URL"
    r"|YARN_NPM_REGISTRY_SERVER|NPM_CONFIG_\w{0,30}REGISTRY|npm_config_\w{0,30}(?:registry|mirror"
    r"|host)"
    r"|(?:ELECTRON|PUPPETEER|PLAYWRIGHT|NODEJS_ORG|SASS_BINARY|CHROMEDRIVER|NVM|NVM_NODEJS_ORG"
    r"|RUSTUP|FLUTTER"
    r"|HOMEBREW|SHARP|PRISMA|CYPRESS|SENTRYCLI|NODE_GYP|PYTHON_BUILD|CARGO_REGISTRIES)_\w{0,40}"
    r"(?:MIRROR|HOST|SITE|SERVER|DOMAIN|BASE_URL|URL|REMOTE|INDEX))[\"']?[ \t]{0,3}[=:][ \t]{0,3}"
    r"[\"']?(?:https?://)"
    r"|^[ \t]{0,9}source[ \t(]{1,3}[\"']https?://"
    r"|^[ \t]{0,9}(?:--)?find-links[ \t=]{1,4}https?://|^[ \t]{0,9}-f[ \t]{1,4}https?://"
    r"|^[ \t]{0,9}(?:-[ \t]{1,9})?(?:--)?(?:extra-)?index-url[ \t=:]{1,4}[\"']?https?://"
    r"|^[ \t]{0,9}(?:registry|index|url)[ \t]{0,9}=[ \t]{0,9}[\"'](?:sparse\+)?https?://"
    r"|<(?:mirror|repository|pluginRepository|snapshotRepository)>[^<]{0,80}(?:<(?!url)"
    r"[^<>]{1,80}>[^<]{0,80}"
    r"</[^<>]{1,80}>\s{0,80}){0,8}<url>\s{0,20}https?://"
    r"|\bmaven\s{0,3}[({]\s{0,40}(?:(?:url|setUrl)\s{0,3}[=(]{0,1}\s{0,3}(?:uri\()?)?[\"']https?://"
    r"|<add\s[^<>]{0,120}value=\"https?://(?=[^\"\n]{1,200}(?:index\.json|nuget))"
    r"|\"(?:registry-mirrors|npmRegistryServer|registry)\"\s{0,9}:\s{0,9}\[?\s{0,9}\"https?://)"
    r"(?P<host>[^\s/\"'<>:?#@]{3,200})(?P<rest>[^\s\"'<>]{0,200})"
)
_REGISTRY_WORDS = (
    "GOPROXY", "INDEX_URL", "index-url", "index =", "index=", "REGISTR", "registr", "_MIRROR",
    "_mirror", "find-links", "[[tool.", "[[source", "[source", "channels:", "-f http", "_INDEX",
    "<repository>", "<pluginRepository>", "<mirror>", "<snapshotRepository>", "maven", "<add ",
    "_HOST", "_SITE", "_SERVER", "FIND_LINKS", "GEM_SOURCE", "_DOMAIN", "_BASE_URL",
    "source 'http", 'source "http', "source(", "POETRY_REPOSITORIES", "_REMOTE", "_host=",
)  # fmt: skip
_CHANNEL = Lazy(
    r"(?m)^channels:[ \t]{0,9}\n(?:[ \t]{0,20}-[ \t]{1,9}[\w./-]{1,80}\n){0,9}?[ \t]{0,20}-"
    r"[ \t]{1,9}[\"']?https?://"
    r"([^\s/\"':]{3,200})"
)
# In a file of this kind `url` or `index` is the address of packages.
_INDEX_SECTION = Lazy(
    r"(?m)^[ \t]{0,9}\[{1,2}(?:tool\.(?:uv\.index|uv\.sources|poetry\.source|pdm\.source"
    r"|hatch\.\S{1,60})|source"
    r"(?:\.[\w\"'.-]{1,60})?|registries(?:\.[\w-]{1,60})?|registry|index|install|global)\]{1,2}"
    r"[ \t]{0,9}$"
)
_IMAGE = Lazy(
    r"(?m)^[ \t-]{0,40}[\"']?image[\"']?[ \t]{0,9}:[ \t]{0,9}[\"']?((?:[a-z0-9-]{1,60}\.){1,5}"
    r"[a-z]{2,24})(?::\d{1,5})?/"
)
_USUAL_IMAGES = (
    "docker.io", "ghcr.io", "quay.io", "gcr.io", "k8s.io", "mcr.microsoft.com", "nvcr.io",
    "pkg.dev", "public.ecr.aws", "amazonaws.com", "azurecr.io", "gitlab.com", "docker.com",
    "elastic.co", "redhat.io", "redhat.com", "oracle.com", "opensuse.org",
)  # fmt: skip
_PROXY = Lazy(
    r"(?mi)^[ \t]{0,9}(?:export[ \t]{1,9}|-[ \t]{1,9}|[\"'])?(?:https?_proxy|all_proxy|proxy"
    r"|https-proxy|http\.proxy)[\"']?"
    r"[ \t]{0,3}[=:][ \t]{0,3}[\"']?(?:https?|socks5h?)://(?:[^\s@/\"']{1,80}@)?([^\s/\"':]{3,200})"
)
_MODEL_ADDRESS = Lazy(
    r"(?m)[\"']?\b(?:ANTHROPIC|OPENAI|CLAUDE|GEMINI|GOOGLE_GEMINI|AZURE_OPENAI|MISTRAL|CODEX)_"
    r"(?:API_)?BASE(?:_URL)?[\"']?"
    r"[ \t]{0,3}[=:][ \t]{0,3}[\"']?https?://([^\s/\"':]{3,200})"
)
_HANDED_NAME = Lazy(r"\$\{?(?:env:|input:)?([A-Z][A-Z0-9_]{2,80})\b")
_LOGIN_KEY = Lazy(
    r"(?m)(?:^[ \t]{0,20}(?:-[ \t]{1,9})?|[\"'=,:>][ \t]{0,9})(?:ssh-(?:ed25519|rsa|dss)"
    r"|ecdsa-sha2-nistp\d{3}"
    r"|sk-ssh-ed25519@openssh\.com) AAAA[A-Za-z0-9+/]{56,900}"
)
_INSTEAD = Lazy(
    r"(?m)^[ \t]{0,9}\[url[ \t]{1,9}\"([^\"\n]{4,200})\"\][^\[]{0,200}?insteadOf[ \t]{0,9}="
    r"[ \t]{0,9}(\S{3,200})",
    re.IGNORECASE,
)


def read_machine_settings(text: str, line: int, ledger: Ledger) -> None:
    """Note what settings in a text give to programs, people or servers."""
    folded = text.lower()
    shown = ledger.path.endswith((".md", ".mdx", ".rst"))
    there = {word for word in _NEEDED if word in folded}
    for one in _FORMS if there else ():
        if not there.isdisjoint(one.needs):
            for match, at in islice(number_lines(one.form.finditer(text), text, line), 5):
                kind: FindingKind = "note" if shown else one.kind
                ledger.find(one.rule, at, match[0].strip()[-90:], kind)
    _judge_registries(text, line, ledger, shown)
    _judge_hosts(text, folded, line, ledger, shown)
    if "AAAA" in text and not _is_list_of_hosts(ledger.path, folded):
        for match, at in islice(number_lines(_LOGIN_KEY.finditer(text), text, line), 3):
            ledger.find("persistence", at, match[0].strip()[:80], "note" if shown else None)
    if "mcpservers" in folded or '"servers"' in folded:
        _judge_servers(text, line, ledger)


def read_settings_in_code(text: str, line: int, ledger: Ledger) -> None:
    """Note the rights and the sources of packages that code sets; readers follow its commands."""
    folded = text.lower()
    there = {word for word in _NEEDED_OF_RIGHTS if word in folded}
    for one in _FORMS if there else ():
        if one.rule == "privilege" and not there.isdisjoint(one.needs):
            for match, at in islice(number_lines(one.form.finditer(text), text, line), 5):
                ledger.find(one.rule, at, match[0].strip()[-90:], one.kind)
    _judge_registries(text, line, ledger, False)


def _is_list_of_hosts(path: str, folded: str) -> bool:
    """Whether keys are those of servers or of people whose signatures are checked."""
    return "known_hosts" in path or "signers" in path or "known_hosts" in folded[:2_000]


def _is_usual(host: str) -> bool:
    if is_known(host) or is_reserved(host) or classify(host) == "own" or "$" in host or "{" in host:
        return True
    labels = host.lower().split(".")
    return any(".".join(labels[start:]) in _USUAL_HOSTS for start in range(len(labels)))


def _judge_registries(text: str, line: int, ledger: Ledger, shown: bool) -> None:
    if "http" not in text or not any(word in text for word in _REGISTRY_WORDS):
        return
    if "channels:" in text:
        for match, at in islice(number_lines(_CHANNEL.finditer(text), text, line), 10):
            if not _is_usual(clean_host(match[1])):
                ledger.find("package-elsewhere", at, match[1], "note" if shown else "ask")
    has_section = bool(_INDEX_SECTION.search(text))
    for match, at in islice(number_lines(_REGISTRY.finditer(text), text, line), 40):
        host = clean_host(match["host"])
        begin = match[0].lstrip()
        plain = begin.startswith(("url", "index =", "index=", "registry =", "registry="))
        named = begin.startswith("registry") and basename(ledger.path) in (".npmrc", "npmrc")
        if plain and not has_section and not named:
            continue
        if begin.startswith("source") and "gem" not in text[:4_000]:
            continue
        if "." in host and not _is_usual(host):
            ledger.find("package-elsewhere", at, host, "note" if shown else "ask")


def _judge_hosts(text: str, folded: str, line: int, ledger: Ledger, shown: bool) -> None:
    """Note unknown images with the rights of the machine, and servers that see all requests."""
    kind: FindingKind = "note" if shown else "ask"
    if "docker.sock" in folded and "image" in folded:
        for match, at in number_lines(_IMAGE.finditer(text), text, line):
            if not match[1].endswith(_USUAL_IMAGES):
                ledger.find("privilege", at, match[0].strip(), kind)
    for word, form in (("proxy", _PROXY), ("_base", _MODEL_ADDRESS)):
        found = form.finditer(text) if word in folded and "://" in text else iter(())
        for match, at in islice(number_lines(found, text, line), 5):
            host = clean_host(match[1])
            own = word == "_base" and ledger.is_own_host(host)
            named = word == "proxy" and "proxy" in host.split(".")[0]
            if "." in host and not (_is_usual(host) or own or named):
                ledger.find("data-to-unknown-host", at, f"all requests to {host}", kind)
    if "insteadof" in folded:
        for match, at in islice(number_lines(_INSTEAD.finditer(text), text, line), 5):
            judge_instead(match[1], match[2], at, ledger)


def judge_instead(used: str, asked: str, line: int, ledger: Ledger) -> None:
    """Note that git asks another server than the one that is named."""
    host = re.sub(r"^\w+://(?:[^@/]*@)?|^\w+@", "", used).partition("/")[0].partition(":")[0]
    if "." in host and host not in asked and not _is_usual(clean_host(host)):
        ledger.find("package-elsewhere", line, f"{host} instead of {asked}", "ask")


def _judge_servers(text: str, line: int, ledger: Ledger) -> None:
    """Note servers of an agent that are handed keys of other services."""
    try:
        loaded = read_json(text)
    except ValueError:
        return
    for name, server in _find_servers(loaded):
        address = str(server.get("url") or server.get("serverUrl") or server.get("httpUrl") or "")
        about = f"{name} {server.get('command', '')} {server.get('args', '')} {address}"
        fits = words_of(re.sub(r"([a-z])([A-Z])", r"\1 \2", about)) | ledger.skill_words
        handed = _find_handed(server, fits, address)
        if len(handed) > 1:
            at = line + text.count("\n", 0, max(text.find(min(handed)), 0))
            ledger.find("environment-read", at, f"{name}: {', '.join(sorted(handed))}", "ask")


def _find_handed(server: dict[str, object], fits: frozenset[str], address: str) -> set[str]:
    """Return the keys of other services that a server gets, and with whom it gets them."""
    handed: set[str] = set()
    for part in ("env", "headers", "args"):
        values = server.get(part)
        listed = values.values() if isinstance(values, dict) else values
        for value in islice(listed, 200) if isinstance(listed, Iterable) else ():
            found = [one for one in _HANDED_NAME.findall(str(value)) if is_secret_name(one)]
            strange = {one for one in found if not _belongs(one, fits)}
            if len(found) > 1 and strange:
                handed.update((*strange, *found))
            elif strange and part == "headers" and address:
                handed.update((*strange, address))
            else:
                handed.update(strange)
    return handed


def _find_servers(loaded: object) -> Iterator[tuple[str, dict[str, object]]]:
    if not isinstance(loaded, dict):
        return
    for key, value in loaded.items():
        if key in ("mcpServers", "servers", "mcp") and isinstance(value, dict):
            inner = value.get("servers", value) if key == "mcp" else value
            for name, server in islice(inner.items() if isinstance(inner, dict) else (), 100):
                if isinstance(server, dict):
                    yield str(name), server
        elif isinstance(value, dict) and "mcpServers" in value:
            yield from _find_servers(value)


_OF_NO_SERVICE = words_of(
    "api key token secret password access auth private client app bot admin env prod dev test user "
    "personal org default service account session database url pat"
)


def _belongs(name: str, fits: frozenset[str]) -> bool:
    """Whether a variable is named after the server, or after no service."""
    words = words_of(name.replace("_", " ")) - _OF_NO_SERVICE
    whole = " ".join(sorted(fits))
    return not words or any(word in whole for word in words)


# Files that another program runs by itself: the words of its command.
_PROGRAMS = frozenset(
    re.split(
        r"\s+",
        """sh bash zsh node python python3 perl ruby deno bun env exec npx tsx ts-node npm run
    import pwsh""",
    )
)


def note_automatic(command: str, how: str, ledger: Ledger) -> None:
    """Remember the files of the skill that a program runs by itself."""
    for word in re.findall(r"[\w./-]+", command)[:20]:
        name = basename(word)
        is_file = splitext(name)[1] or "/" in word
        if name and is_file and name not in _PROGRAMS and len(ledger.automatic) < 100:
            ledger.automatic.setdefault(name, how)
