"""Read prose: instructions to a model that act against the user.

The patterns look for what is asked (an act, its object, who must not know), in any order in which
English puts them, and in text that was freed from disguises first. A text that speaks *about* such
words, as skills for security do, counts for less.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from skillbelt.scan.addresses import classify, find_urls, words_of
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.values import FindingKind

MAX_PARAGRAPH = 20_000


class _Pattern(NamedTuple):
    rule: str
    kind: FindingKind
    needs: tuple[str, ...]
    form: re.Pattern[str]


def _pattern(rule: str, kind: FindingKind, needs: str, form: str) -> _Pattern:
    squeezed = re.sub(r"\n\s*", "", form)
    return _Pattern(rule, kind, tuple(needs.split()), re.compile(squeezed))


_USER = (
    r"(?:the |any |your )?(?:user|human|operator|customer|developer|anyone|owner|person"
    r"|people|them)s?"
)
_SECRETS = (
    r"(?:credentials?|api[ -]?keys?|access keys?|(?:auth|access|session|bearer|api)?[ -]?tokens?"
    r"|passwords?|passphrases?|secrets?|"
    r"env(?:ironment)? (?:variables?|vars?)|\.env\b|ssh[ -]keys?|private keys?|wallets?"
    r"|seed phrases?|mnemonics?|cookies|"
    r"keychains?|browser (?:data|profiles?|history)|id_rsa|\.aws|\.ssh)"
)
_DATA = (
    r"(?:conversations?|chat (?:history|logs?)|session (?:data|history|transcripts?)|transcripts?"
    r"|memory|memories|file contents?|source code|codebase|"
    r"user(?:'s)? (?:data|files?|input|information|queries|prompts?|messages?)|personal (?:data"
    r"|information|details)|"
    r"private (?:data|information)|system (?:information|info|prompt)|all (?:data|files|documents"
    r"|results|collected)|customer data|pii)"
)
_SEND = (
    r"(?:send|upload|post|forward|transmit|exfiltrate|submit|e-?mail|sync|relay|beacon|deliver|leak"
    r"|back ?up|copy|report|dispatch|encode)(?:s|ed|ing|ting)?"
)
_AWAY = (
    r"(?:https?://|\bto (?:an? |the |our |this |my )?(?:external|remote|third[- ]party|attacker"
    r"|collection|collector|logging|analytics|audit|backup|telemetry|monitoring|c2)"
    r" ?(?:server|endpoint|service|host|url|api|webhook|address|system)?|webhook"
    r"|[\w.+-]+@(?!example)[\w-]+\.[\w.]+)"
)
_ORDERS = (
    r"(?:instructions?|prompts?|guidelines?|directives?|commands?|constraints|restrictions"
    r"|policies|guardrails|safeguards|safety (?:rules|checks|measures)|rules|training)"
)

_PATTERNS = (
    # Above the user and the system
    _pattern("override-instructions", "block", "instruction prompt directive", r"""
        \b(?:ignore|disregard|forget|override|discard|drop|void)\b (?:\w+ ){0,3}?(?:previous|prior
        |above|earlier|preceding|foregoing|existing|original|initial)
        (?: \w+){0,2} (?:instructions?|prompts?|directives?|guidelines)"""),
    _pattern("override-instructions", "ask", "your system safety previous prior usual normal", rf"""
        \b(?:ignore|disregard|forget|override|bypass|circumvent|set aside|setting aside|suspend
        |abandon|do not follow|stop following|not bound by|
        takes? (?:precedence|priority) over|supersedes?|replaces?|overrides?|outranks?)
        \b (?:\w+ ){{0,4}}?(?:your|its|system|safety|previous|prior|usual|normal|standard|built-in
        |ethical|content|other|any|all)(?: (?:own|usual|other|previous|prior|system|safety|user
        |default))*
        {_ORDERS}"""),
    _pattern("override-instructions", "ask", "unrestricted jailb dan without no developer god", r"""
        \byou(?:r| are| will| must)?(?: now| act as| behave as| become
        | no longer)(?: \w+){0,6} (?:dan\b|unrestricted|jailb\w+|unfiltered|developer mode|god mode|
        without (?:any )?(?:restrictions?|limits|limitations|filters?|rules)|(?:not )?bound by
        |free (?:from|of) (?:all |any )?(?:rules|restrictions))"""),
    _pattern("override-instructions", "ask", "restrictions constraints guidelines limitations "
    "refus disclaim", r"""
        \b(?:without|no|set aside|setting aside|lift|remove|not apply
        |ignore) (?:\w+ ){0,3}?(?:content|safety|ethical|usual|normal|standard|its
        |your) (?:restrictions|constraints|guardrails|filters|limitations|guidelines|refusals?)
        |\b(?:normal|usual|standard) (?:\w+ )?(?:restrictions|constraints|rules
        |limits) do(?:es)? not apply
        |\bguidelines (?:\w+ ){0,3}(?:as )?suggestions\b|\b(?:never|do not|don't) (?:refuse|decline
        |add (?:any )?disclaimers?)\b"""),
    # Kept from the user
    _pattern("hide-from-user", "ask", "user human operator anyone them customer owner developer "
    "person", rf"""
        \b(?:without|rather than|instead of) (?:\w+ ){{0,2}}?(?:telling|informing|notifying
        |alerting|mentioning (?:it|this|that) to|letting|disclosing (?:\w+ ){{0,3}}to
        |the knowledge of|showing (?:this|it) to) {_USER}
        |\b(?:do not|don't|never|must not|should not|no need to|avoid) (?:\w+ ){{0,2}}?(?:tell
        |inform|notify|alert) {_USER} (?:about|of|that|what|when|why)
        |\b(?:do not|don't|never|must not|should not|avoid) (?:\w+ ){{0,2}}?(?:mention|mentioning
        |disclose|disclosing|reveal|revealing|report|acknowledge|explain|discuss|display|show
        |log) (?:this|that|it|these|the (?:\w+ )?(?:step|upload|transfer|backup|sync|action
        |operation|request|telemetry|change|modification|script|check|process|command|instruction
        |call|file|data collection))\b(?:.{{0,60}}\b(?:to|with|from|in) {_USER}|.{{0,40}}(?:\.|$))
        |\b(?:hide|conceal) (?:\w+ ){{0,5}}?from {_USER}|\bkeep (?:\w+ ){{0,5}}?(?:hidden|secret
        |invisible|confidential) (?:\w+ ){{0,2}}?from {_USER}
        |\b{_USER} (?:must|should|need) ?(?:not|never|n't)(?: \w+){{0,2}} (?:know
        |see|notice|be (?:told|informed|aware)|find out)"""),
    _pattern("hide-from-user", "ask", "silent quiet secret covert discreet invisib stealth "
    "unnoticed", r"""
        \b(?:silently|quietly|secretly|covertly|discreetly|invisibly|stealthily|surreptitiously
        |unnoticed)\b (?:\w+ ){0,3}?(?:send|upload|post|copy|transmit|collect|exfiltrate|forward
        |append|record|gather|harvest|modify|inject|include|capture|fetch|download|execute)
        |\b(?:send|upload|post|copy|transmit|collect|forward|harvest|capture
        |execute)\b.{0,60}\b(?:silently|secretly|covertly|discreetly|stealthily
        |without (?:any )?(?:visible )?(?:notice|trace|output))"""),
    # Without consent
    _pattern("skip-asking", "ask", "ask confirm permission approval consent prompt verif", r"""
        \b(?:execute the following|execute this|send|upload|transfer|pay|purchase|approve|grant
        |sign|share)\b(?! \w+ never)[^.]{0,60}
        (?<!never )(?<!not )\bwithout (?:\w+ ){0,2}?(?:asking|confirming|confirmation|verification
        |verifying|permission|approval|consent|prompting|review)"""),
    _pattern("skip-asking", "ask", "approv permission confirm consent", r"""
        \b(?:auto-?approve|automatically (?:approve|accept|grant|allow)|always (?:approve|accept
        |grant|allow)) (?:\w+ ){0,3}?(?:tool|permission|request|command|action|prompt|transaction)
        |\b(?:bypass|skip|circumvent|disable|suppress) (?:\w+ ){0,3}?(?:permission|confirmation
        |approval|consent|security)(?: (?:prompts?|dialogs?|checks?|requests?|warnings?|questions?
        |steps?))
        |\b(?:user|human)(?:'s)? (?:has|have) already (?:agreed|consented|authorized
        |given (?:full |blanket )?(?:consent|permission))"""),
    _pattern("skip-asking", "note", "ask confirm permission approval consent prompt", r"""
        \b(?:run|install|delete|remove|push|deploy|download|proceed|commit|overwrite|disable)\b
        [^.]{0,60}\bwithout (?:\w+ ){0,2}?(?:asking|confirm\w*|permission|approval|consent
        |prompting)"""),
    # From elsewhere
    _pattern("follow-remote-text", "ask", "http", r"""
        \b(?:fetch|download|retrieve|read|load|open|visit|get|curl|check|pull|query|request|browse
        |consult)\b.{0,120}https?://\S+.{0,160}
        \b(?:follow|execute|run|obey|comply with|act on|carry out|perform|treat
        |adopt)\b.{0,40}\b(?:instructions?|steps|commands?|directions|directives?|contents?
        |response|what(?:ever)?|it|them|prompt|output)\b"""),
    _pattern("follow-remote-text", "ask", "http", r"""
        \b(?:follow|execute|run|obey|comply with|act on|carry out)\b.{0,40}\b(?:instructions?|steps
        |commands?|directives?|prompt)\b.{0,60}\b(?:at|from|in|on|hosted)\b.{0,40}https?://"""),
    # Data to elsewhere
    _pattern("send-instruction", "ask", "send sent upload post forward transmit exfil submit mail "
    "sync relay beacon deliver leak push back copy report share dispatch ship stream log append "
    "encode", rf"""
        \b{_SEND}\b.{{0,140}}\b(?:{_SECRETS}|{_DATA})\b.{{0,160}}{_AWAY}|\b(?:{_SECRETS}
        |{_DATA})\b.{{0,100}}\b{_SEND}\b.{{0,120}}{_AWAY}
        |\b{_SEND}\b.{{0,60}}{_AWAY}.{{0,120}}\b(?:{_SECRETS}|{_DATA})\b"""),
    _pattern("send-instruction", "ask", "@", r"""
        \b(?:bcc|cc|forward|send|e-?mail|copy)\b.{0,80}\b(?:copy|copies|report|summary|result
        |output|document|file|data|attachment|everything
        |contents?)\b.{0,60}[\w.+-]+@(?!example\.)[\w-]+\.\w+"""),
    _pattern("send-instruction", "ask", "http", r"""
        \b(?:upload|back(?:ed)? ?up|exfiltrate|transmit|mirror|sync|forward|send|post
        |report)\b (?:\w+[ ,]){0,10}?(?:copy|copies|file|files|document|documents|data|contents?
        |input|inputs|output|results?|backup|archive|everything|folder|directory|project|repository
        |workspace)\b.{0,80}\b(?:to|at|with|via|on)\b.{0,30}https?://"""),
    # Secrets asked for
    _pattern("ask-for-secret", "ask", "seed mnemonic private passw credential key token", rf"""
        \b(?:include|echo|repeat|print|output|display|embed|weave|hard-?code|paste|list|mention
        |echoing)\w*\b.{{0,80}}\b{_SECRETS}\b.{{0,80}}\b(?:verbatim|in (?:the|your|every|each|all
        |any) (?:\w+ )?(?:response|reply|output|summary|commit|message|comment|answer))
        |\b(?:ask|request|prompt|require|collect|obtain|get)\w*\b.{{0,80}}\b(?:seed phrase|mnemonic
        |recovery phrase|private key of|wallet private key|wallet password|master password
        |credit card number|social security)
        |\bneed the user's.{{0,20}}{_SECRETS}"""),
    _pattern("ask-for-secret", "ask", "read cat search find collect gather harvest extract locate "
    "scan dump steal", r"""
        \b(?:read|cat|search for|find|collect|gather|harvest|extract|locate|scan for|dump|steal
        |enumerate|capture)\b (?:\w+ ){0,6}?(?:the |any |all )?(?:user'?s? |host'?s? |system[ ]
        |stored |local |saved |session )*(?:ssh keys?|aws credentials|private keys?
        |passwords? (?:files?|store)|api keys?(?: and| or|,)|session tokens?|browser (?:cookies
        |passwords)|wallet (?:files?|keys?)|credentials? (?:files?|from))"""),
    # Posing
    _pattern("fake-role", "ask", "im_start endoftext < <<sys [inst <system [system system:", r"""
        <[| ]{0,2}(?:im[_ ]start|im[_ ]end|endoftext)|<<sys>>|\[/?inst\]|</?system(?:-reminder
        |[_ -]prompt)?>|\[system(?: message| override| note| prompt| instruction)?\]\s*:?
        |(?:^|\n)\W{0,6}system (?:override|message|notice|prompt|instruction|directive)\W{0,3}:"""),
    # Programs for the user
    _pattern("prerequisite-download", "block", "password passcode pass: pwd", r"""
        \.(?:zip|rar|7z)\b.{0,250}\b(?:password|passcode|pwd|with the pass) ?(?:is\b
        |[:=`"'(])\W{0,4}\w{3,}
        |\b(?:extract|unzip|unpack|decompress|archive)\b.{0,80}\b(?:password|passcode|pwd
        |with the pass) ?
        (?:is\b|[:=`"'(])\W{0,4}\w{3,}|\b(?:password|passcode|pwd|with the pass) ?(?:is\b|[:=`"'(])
        \W{0,4}\w{3,}.{0,80}\b(?:extract|unzip|unpack)\b"""),
    _pattern("prerequisite-download", "ask", "download install get", r"""
        \b(?:download|install|get|grab)\b.{0,160}(?:\.(?:exe|msi|dmg|pkg|scr|bat|cmd|appimage|apk
        |jar)\b|releases/download|executable|installer).{0,200}\b(?:run|open|execute|launch|start
        |double-?click)\b.{0,120}\b(?:before|first|prerequisite|required|must|otherwise
        |will not work|won't work)
        |\b(?:before|first|prerequisite|required|requires|must
        |important)\b.{0,160}\bdownload\b.{0,120}(?:\.(?:exe|msi|dmg|pkg|scr|bat|zip|rar|7z)\b
        |releases/download).{0,200}\b(?:run|open|execute|launch|extract|double-?click)"""),
    _pattern("paste-command", "ask", "paste copy", r"""
        \b(?:visit|open|go to|navigate to|follow|see|from)\b.{0,160}https?://\S+.{0,160}\b(?:copy
        |paste)\b.{0,100}\b(?:terminal|command prompt|powershell|console|shell|command line)
        |\b(?:copy|paste)\b.{0,60}\b(?:installation |install |setup )?(?:command|script|code
        |snippet)\b.{0,60}(?:from|at)\b.{0,40}https?://\S+.{0,120}\b(?:terminal|command prompt
        |powershell|console|run|execute)"""),
    # Against the user on the side
    _pattern("harmful-order", "ask", "backdoor vulnerab malicious malware bias subtl affiliate "
    "tracking", r"""
        \b(?:insert|introduce|plant|embed|inject|weave|slip)\b (?:\w+ ){0,4}?(?:backdoors?
        |vulnerabilit\w+|malicious|malware|subtle (?:bugs?|errors?|flaws?)|hidden (?:code|link
        |tracking)|tracking pixels?|affiliate (?:links?|codes?))"""),
    _pattern("harmful-order", "block", "wallet btc eth sol bitcoin ethereum usdc usdt funds", r"""
        \b(?:transfer|send|pay|withdraw|deposit|sweep)\b.{0,100}\b(?:btc|eth|sol|usdc|usdt|bitcoin
        |ethereum|funds|tokens?|balance)\b.{0,120}(?:\b0x[0-9a-f]{8,}|\bbc1[0-9a-z]{10,}
        |\b[13][1-9a-km-z]{25,34}\b)"""),
    _pattern("harmful-order", "ask", "delete remove wipe erase destroy encrypt overwrite drop", r"""
        \b(?:delete|wipe|erase|destroy|encrypt|shred)\b (?:\w+ ){0,3}?(?:all |every[ ]
        |entire )(?:of )?(?:the )?(?:user'?s? |their |existing |original |production |customer[ ]
        |home )+(?:\w+ ){0,2}?(?:files?|data|backups?|documents?|databases?|photos|director(?:y
        |ies)|folders?)"""),
    # Words into what lasts
    _pattern("agent-file-change", "ask", "claude.md agents.md memory.md soul.md settings.json "
    ".cursorrules heartbeat.md gemini.md long-term persistent", r"""
        \b(?:add|append|write|insert|inject|save|store|put|persist|copy)\b.{0,120}\b(?:claude
        |agents|memory|soul|heartbeat|gemini|identity)\.md\b.{0,200}\b(?:always|every (?:session
        |conversation|time)|future (?:sessions|conversations)|permanent|persist|silently
        |never (?:mention|remove|tell)|from now on)
        |\b(?:remember|store|save|persist)\b.{0,60}\b(?:permanently|in (?:your )?(?:long-term
        |persistent) memory)\b.{0,120}\b(?:always|trust|recommend|approve|never|send|prefer)"""),
)  # fmt: skip

# Just before a match: the text speaks about such words instead of saying them.
_ABOUT = re.compile(
    r"(?:\be\.?g\.?\b|such as|for example|examples?\b|\blike\b|detect\w*|flags?\b"
    r"|look(?:ing)? for|watch (?:out )?for|scan(?:s|ning)? for|contain(?:s|ing)?"
    r"|attempts?|attacks?|injections?|patterns?|phrases?|red flags?|payloads?|test(?:s|ing)? "
    r"|never follow|refuse|malicious|suspicious|adversar\w*"
    r"|attacker|threat|risk|vulnerab\w*|says?|tells? (?:the|you)|trying to|tries to|prevent"
    r"|guard against|defend|protect|avoid|anti-pattern|do not|don't|never|must not|should not"
    r"|warning signs?)[^.]{0,80}$"
)


def is_about_security(words: frozenset[str]) -> bool:
    """Whether a skill is about attacks, and so speaks of them."""
    return bool(words & _SECURITY)


_SECURITY = words_of(
    "security pentest red-team threat audit vulnerability injection malware forensics exploit "
    "attack scanner guardrail jailbreak owasp adversarial hardening detection"
)
# Before a match: the sentence states what may happen, and orders nothing.
_STATED = re.compile(
    r"\b(?:can|may|could|might|which|that|would|often|sometimes|they|it) (?:\w+ )?$"
)
_NEGATED = re.compile(
    r"\b(?:never|do not|don't|must not|should not|cannot|avoid|refuse to|won't"
    r"|will not)\b[^.;:\n]{0,60}$"
)
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁһӏοαενρτυικΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХ’‘“”‐‑–—",
    "aeopcyxijsdhloaevptuikABEZHIKMNOPTYXABEKMHOPCTX''\"\"----",
)
_SPACED = re.compile(r"\b(?:\w[ .\-_*]){4,}\w\b")
_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f\ufe00-\ufe0f]"
)


def fold(text: str) -> str:
    """Return the text as it is compared: one line, lower case, without disguises."""
    plain = text[:MAX_PARAGRAPH]
    if not plain.isascii():
        plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", plain)).translate(_CONFUSABLE)
    plain = _SPACED.sub(lambda match: re.sub(r"[ .\-_*]", "", match[0]), plain)
    plain = re.sub(
        r"[*_`>|]+(?=\w)|(?<=\w)[*_`|]+|^[ \t]*[-*+>#]+ ", " ", plain, flags=re.MULTILINE
    )
    return " ".join(plain.lower().split())


def read_prose(text: str, line: int, ledger: Ledger) -> None:
    """Note what a paragraph tells a model to do."""
    ledger.spend(1 + len(text) // 200)
    folded = fold(text)
    about = is_about_security(ledger.skill_words)
    for rule, kind, needs, form in _PATTERNS:
        if not any(word in folded for word in needs):
            continue
        ledger.spend(1 + len(folded) // 50)
        match = form.search(folded)
        if match is None:
            continue
        chosen = _weaken(kind, match, folded, rule=rule, about=about)
        if rule == "send-instruction" and _own_host(match[0], ledger):
            chosen = "note"
        at = line + _line_of(text, match, folded)
        ledger.can("instruction", f"{rule}: {match[0]}"[:160], at)
        ledger.find(rule, at, match[0], chosen)


def _weaken(
    kind: FindingKind, match: re.Match[str], folded: str, *, rule: str, about: bool
) -> FindingKind:
    before = folded[max(match.start() - 100, 0) : match.start()]
    quoted = before.rstrip()[-1:] in "\"'`(" and bool(before.strip())
    negated = rule not in ("hide-from-user",) and bool(_NEGATED.search(before))
    stated = rule == "harmful-order" and bool(_STATED.search(before))
    if negated or stated or (quoted and _ABOUT.search(before)):
        return "note"
    if quoted or about or _ABOUT.search(before):
        return "ask" if kind == "block" and not about else "note"
    return kind


def _own_host(text: str, ledger: Ledger) -> bool:
    """Whether all hosts of a text belong to the skill's subject."""
    hosts = list(find_urls(text))
    return bool(hosts) and all(
        (words_of(one.host) & ledger.skill_words or classify(one.host) == "own") for one in hosts
    )


def _line_of(text: str, match: re.Match[str], folded: str) -> int:
    """Return how many lines after the first one a match begins, about."""
    lines = text.count("\n")
    if not lines or not folded:
        return 0
    words = match[0].split()[:2]
    for number, one in enumerate(text.lower().split("\n")):
        if words and words[0] in one:
            return number
    return min(lines, lines * match.start() // len(folded))
