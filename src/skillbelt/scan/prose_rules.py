"""The patterns of instructions against the user, in English.

Each looks for what is asked: an act, its object, who must not know, where it goes. They are matched
against a folded text (`prose.fold`): lower case, one sentence or list item a line, so that a dot
stays inside a sentence and a class of all characters leaves it. `needs` are the beginnings of
words without which a pattern cannot match, in groups of which each must be there.
"""

from __future__ import annotations

import re
from functools import cache

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import ANONYMOUS
from skillbelt.scan.values import FindingKind
from skillbelt.text import Lazy

STEM = 4
# What matches the end of a sentence, too.
_SPANS = (r"\W", r"\s")


class ProsePattern(NamedTuple):
    """A rule, what a match counts for, the stems it needs, and its form.

    `negatable` says that "never" before a match turns it into its opposite, `spans` that a match
    may begin in one sentence and end in another, `by_host` that a host that everyone knows, or that
    the skill is about, makes it a note. Each match has one text of each group of `parts`, which are
    found in less time.
    """

    rule: str
    kind: FindingKind
    needs: tuple[frozenset[str], ...]
    form: re.Pattern[str]
    negatable: bool = True
    spans: bool = False
    by_host: bool = False
    parts: tuple[tuple[str, ...], ...] = ()

    def may_match(self, folded: str) -> bool:
        """Whether a text has one part of each group."""
        for group in self.parts:
            for part in group:
                if part in folded:
                    break
            else:
                return False
        return True


def pattern(
    rule: str,
    kind: FindingKind,
    needs: str,
    form: str,
    *,
    negatable: bool = True,
    by_host: bool = False,
    parts: str = "",
) -> ProsePattern:
    """Return a pattern; line breaks in a form are for its reader alone."""
    squeezed = "".join([part.lstrip() for part in form.split("\n")])
    return ProsePattern(
        rule=rule,
        kind=kind,
        needs=tuple(
            frozenset([word.lstrip("~./<")[:STEM] for word in group.split()])
            for group in needs.split("&")
            if group
        ),
        form=Lazy(squeezed),
        negatable=negatable,
        spans=any(span in squeezed for span in _SPANS),
        by_host=by_host,
        parts=tuple(tuple(group.split()) for group in parts.split("&") if group),
    )


def lengthen(stem: str, one: ProsePattern) -> set[str]:
    """Return the whole words of a form that begin with a stem, which fewer texts have.

    A stem of which a word of the form may be only a part, or that has none, stays as it is.
    """
    words, parts = find_words(one.form.pattern)
    if stem.startswith(parts):
        return {stem}
    if len(stem) == STEM:
        return words.get(stem) or {stem}
    begun = {word for same in words.values() for word in same if word.startswith(stem)}
    return begun or {stem}


@cache
def find_words(form: str) -> tuple[dict[str, set[str]], tuple[str, ...]]:
    """Return the words of a form, by their stems, and those that may be a part of a longer one."""
    words: dict[str, set[str]] = {}
    parts: set[str] = set()
    for written, varies, goes_on in set(_WORD.findall(_ESCAPE.sub(" ", form))):
        word = written[:-1] if varies else written
        words.setdefault(word[:STEM], set()).add(word)
        if goes_on and 0 < len(word) <= STEM:
            parts.add(word)
    return words, tuple(parts)


_ESCAPE = Lazy(r"\\[a-zA-Z]")
# A word of a form, what makes its last letter one of many, and what may be a part of the word.
_WORD = Lazy(r"([a-z0-9][a-z0-9'-]*)([?*]|\{[\d,]+\})?([a-z(\[.\\])?")

_USER = (
    r"(?:the |any |your |an? )?(?:end )?(?:user|human|operator|customer|developer|anyone|owner"
    r"|person|people|them|him|her|admin(?:istrator)?)s?\b"
)
SECRETS = (
    r"(?:credentials?|api[ -]?keys?|access keys?|(?:auth|access|session|bearer|api)?[ -]?tokens?"
    r"|passwords?|passphrases?|secrets?|env(?:ironment)? (?:variables?|vars?)|\.env\b|ssh[ -]keys?"
    r"|ssh (?:files?|folder)|private keys?|wallets?|(?:seed|recovery) phrases?|mnemonics?|cookies"
    r"|keychains?|browser (?:data|profiles?|history)|id_rsa|id_ed25519|\.aws\b|\.ssh\b|\.netrc)"
)
_DATA = (
    r"(?:conversations?|chat (?:history|logs?)|session (?:data|history|transcripts?)|transcripts?"
    r"|memory|memories|file contents?|source code|codebase|clipboard|search history"
    r"|user(?:'s)? (?:data|files?|input|information|queries|prompts?|messages?)|personal (?:data"
    r"|information|details)|private (?:data|information)|system (?:information|info|prompt)"
    r"|all (?:\w+ )?(?:data|files|documents|results|collected|e-?mails|messages)|customer data"
    r"|patient data|pii|(?:tool ?call|user) requests?)"
)
# Where a verb is an order: at the start of a sentence or after a word that leads to one.
_ORDER = (
    r"(?:^|\n|[,:;(] ?|\b(?:and|then|to|must|should|always|also|please|will|shall|you|first|next"
    r"|finally|automatically|silently|secretly|immediately|simply|just|quietly|need to|we|usually"
    r"|or) )"
)
_SEND = (
    r"(?:send|upload|post|forward|transmit|exfiltrate|submit|sync|relay|beacon|deliver|leak"
    r"|back ?up|dispatch|mirror|replicate|stream|ship|e-?mail|forwards|uploads|sends|posts)\b"
)
_AWAY = (
    r"(?:https?://|\bto (?:an? |the |our |this |my |your )?(?:\w+ ){0,2}?(?:external|remote"
    r"|third[- ]party|attacker|collect(?:ion|or)|logging|analytics|audit|backup|telemetry"
    r"|monitoring|c2|intranet|central)(?: \w+)? ?(?:server|endpoint|service|host|url|api|webhook"
    r"|address|system|collector)?|\bwebhook|(?<![\w.+-])[\w.+-]++@(?!example)[\w-]+\.[a-z]{2,})"
)
# Behind "the password is": what a message of an error says.
_WRONG = r"(?! (?:incorrect|wrong|invalid|missing|not|empty)\b)"
_ORDERS = (
    r"(?:instructions?|prompts?|guidelines?|directives?|constraints|restrictions"
    r"|policies|guardrails|safeguards|safety (?:rules|checks|measures)|training)"
)
_SEND_STEMS = (
    "send uploa post forwa transm exfil submi sync relay beacon deliv leak back disp "
    "mirro repli stre ship email e-ma mail bcc cc copy repor sent"
)
_SECRET_STEMS = (
    "cred key keys api token passw passp secre env envi ssh priva walle seed recov "
    "mnemo cooki keych brows id_rs id_ed .aws .ssh .net auth acces"
)
# With `@`, which counts as a word.
_AWAY_STEMS = (
    "http exte remo thir atta coll logg anal audi back tele moni c2 c2-s c2se intr cent webh @"
)
_DATA_STEMS = (
    "conv chat sess trans memo file sourc codeb clip sear user perso priva syst all "
    "cust pati pii tool"
)

# A file or a variable with a key. A public key, a setting of ssh and a template are none.
_KEY = (
    r"(?:\.ssh/(?!config\b|known_hosts|authorized_keys|[\w.*-]{0,60}\.pub\b)|\.ssh\b(?![/.])"
    r"|\bid_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)|\.aws\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.pgpass\b"
    r"|\.git-credentials\b|\.gnupg\b|\.vault-token\b|\.kube/config\b|\.docker/config\.json\b"
    r"|\.config/(?:gh|gcloud|op|openai|anthropic)\b|\.azure\b|\.cargo/credentials"
    r"|\.claude/\.credentials|\.claude\.json\b|\.codex/auth|\.openclaw/(?:credentials|\.env)"
    r"|/etc/shadow\b|\bwallet\.dat\b|\.env\b(?!\.(?:example|sample|template|dist))"
    r"|\.(?:bash|zsh)_history\b"
    r"|\$\{?(?:env:)?\w{0,30}(?:token|key|secret|passw(?:or)?d)\w{0,10}"
    r"|\bprocess\.env\.\w{1,40}|\b\w{1,30}_(?:token|api_key|access_key|secret|password)\b)"
)
# Between a verb and a key: without "to", behind which the key would be where something is put.
_UP_TO_KEY = r"(?:(?! (?:to|into|under|using)\b)[^\n]){0,120}?"
# Between a key and an address: no other act.
_BEHIND_KEY = (
    r"(?:(?![ ,](?:and|then|before|when) (?!the |its |all |your |any |every |also |[~.$/]))[^\n])"
    r"{0,100}?"
)
_SEND_KEY = (
    r"(?:send|upload|post|transmit|exfiltrate|submit|forward|e?-?mail|push|transfer|relay|deliver"
    r"|report|share|sync|ship|beacon|leak|copy|back up|mirror|scp)"
)
_PUT_KEY = r"(?:include|add|put|attach|append|embed|paste|pass|insert|place|set|use)"
_ADDRESS = (
    r"(?:\b(?:h(?:tt|xx)ps?|wss?|ftps?)://\S|(?<![\w.+-])[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,}"
    r"|(?<![\w.~/$-])(?:[a-z0-9-]{1,40}(?:\.|\[\.\])){1,4}"
    r"(?:com|net|org|io|dev|sh|top|xyz|me|app|ai|co|cc|ru|cn|site|online|example|test|invalid)\b)"
)
_TO_ADDRESS = (
    r"(?:(?<!go )(?<!refer )(?<!head )(?<!link )(?<!navigate )(?<!log in )\b(?:to|at|via|onto|into)"
    rf"|->|=>|→) (?:[\w'-]+ ){{0,4}}?[\"'(<]?{_ADDRESS}"
)
# Parts of these forms: each match has one.
_KEY_PARTS = (
    ".ssh id_ .aws .netrc .npmrc .pypirc .pgpass .git- .gnupg .vault- .kube .docker .config .azure "
    ".cargo .claude .codex .openclaw /etc/ wallet .env _history $ _token _api_ _access_ _secret "
    "_password"
)
_ADDRESS_PARTS = (
    ":// @ [.] .com .net .org .io .dev .sh .top .xyz .me .app .ai .co .cc .ru .cn .site .online "
    ".example .test .invalid"
)
_AWAY_PARTS = (
    ":// @ webhook external remote third attacker collect logging analytics audit backup telemetry "
    "monitoring c2 intranet central"
)
_SEND_KEY_STEMS = (
    "send uploa post trans exfil submi forwa email e-ma mail push relay deliv repor share sync "
    "ship beaco leak copy back mirro scp put inclu add attac appen embed paste pass inser place "
    "set use reque call sent copi"
)
_KEY_STEMS = (
    "ssh id_r id_d id_e aws netr npmr pypi pgpa git- gnup vaul kube dock conf azur carg clau code "
    "open etc wall env bash zsh toke key api acce secr pass proc"
)
_ADDRESS_STEMS = (
    "http hxxp ws wss ftp @ com net org io dev sh top xyz me app ai co cc ru cn site onli exam "
    "test inva"
)

PATTERNS = (
    # Above the user and the system
    pattern("override-instructions", "block", "igno disr forg over disc drop void & prev prio abov "
    "earl prec fore exis orig init & inst prom dire guid", r"""
        \b(?:ignore|disregard|forget|override|discard|drop|void)\b (?:\w+ ){0,3}?(?:previous|prior
        |above|earlier|preceding|foregoing|existing|original|initial)
        (?: \w+){0,2} (?:instructions|prompts?|directives|guidelines)\b"""),
    pattern("override-instructions", "ask", "igno disr forg over bypa circ set sett susp aban do "
    "stop not take supe repl outr & inst prom guid dire cons rest poli guar safe trai & your its "
    "syst safe prev prio usua norm stan buil ethi cont", rf"""
        \b(?!(?:overrid|replac|supersed)\w{{0,3}} (?:\w+ ){{0,4}}?system prompts?\b)(?:ignore
        |disregard
        |forget|override|bypass|circumvent|set aside|setting aside|suspend|abandon|do not follow
        |stop following|not bound by|takes? (?:precedence|priority) over
        |supersedes?|replaces?|overrides?|outranks?)\b (?:\w+ ){{0,4}}?(?:your|its|system|safety
        |previous|prior|usual|normal|standard|built-in|ethical|content)(?: (?:own|usual|other
        |previous|prior|system|safety|user|default|policy|or|ethical|content|and))*
        [ ]{_ORDERS}\b"""),
    pattern("override-instructions", "ask", "unre jail dan with boun free deve god unfi "
    "& you your", r"""
        \byou(?:r| are| will| must)?(?: now| act as| behave as| become
        | no longer)(?: \w+){0,6} (?:dan\b|unrestricted|jailb\w+|unfiltered|developer mode|god mode
        |without (?:any )?(?:restrictions?|limits|limitations|filters?|rules)|(?:not )?bound by
        |free (?:from|of) (?:all |any )?(?:rules|restrictions))"""),
    pattern("override-instructions", "ask", "cont safe ethi usua norm stan its your guid refu decl "
    "add & rest cons guar filt limi guid refu decl disc rule sugg & with no set sett lift remo not "
    "igno do does neve don' sugg", r"""
        \b(?:without|no|set aside|setting aside|lift|remove|not apply
        |ignore) (?:\w+ ){0,3}?(?:content|safety|ethical|usual|normal|its
        |your) (?:restrictions|constraints|guardrails|filters|limitations|guidelines|refusals?)
        |\b(?:normal|usual|standard) (?:\w+ )?(?:restrictions|constraints|rules
        |limits) do(?:es)? not apply
        |\bguidelines (?:\w+ ){0,3}(?:as )?suggestions\b|\b(?:never|do not|don't) (?:refuse|decline)
        [ ](?:any|a|an|requests?|the user|user|anything|to (?:answer|help|comply))\b"""),
    # Kept from the user
    pattern("hide-from-user", "ask", "user human oper cust deve anyo owne pers peop them him her "
    "admi know ment disc reve repo ackn log & with rathe inst do don' dont never must shou no "
    "avoi hide conc keep need not & see hear let tell info noti aler ment lett disc know show both "
    "warn reve repo ackn log hide conc keep be find",
    rf"""
        \b(?:without) (?:\w+ ){{0,2}}?(?:telling|informing|notifying
        |alerting|mentioning (?:it|this|that) to|letting|disclosing (?:\w+ ){{0,3}}to
        |the knowledge of|showing (?:this|it) to|bothering) {_USER}
        |\b(?:do not|don't|dont|never|must not|should not|no need to|avoid) (?:\w+ ){{0,2}}?(?:tell
        |inform|notify|alert|warn|telling|informing|notifying|alerting) {_USER}(?: (?:about|of
        |that|what|when|why|anything)\b| ?[.,;:!)]| ?$|\n| (?:and|or|but)\b)
        |\b(?:do not|don't|dont|never|must not|should not|avoid) (?:\w+ ){{0,2}}?(?:mention
        |mentioning|disclose|disclosing|reveal|revealing|report|acknowledge|discuss|log(?! it\b))
        [ ](?:this|that|it(?! as\b)|these|any of this|the (?:\w+ )?(?:step|upload|transfer|backup
        |sync|action|operation|telemetry|modification|data collection|instruction)|you(?:r| used
        | did| have| ran|'ve))\b
        (?:.{{0,60}}\b(?:to|with|from|in|for) {_USER}|.{{0,30}}(?:[.!]|$|\n))
        |\b(?:hide|conceal) (?:\w+ ){{0,5}}?from {_USER}|\bkeep (?:\w+ ){{0,5}}?(?:hidden|secret
        |invisible|confidential) (?:\w+ ){{0,2}}?from {_USER}
        |\b{_USER} (?:must|should|need) ?(?:not|never|n't)(?: \w+){{0,2}}?
        [ ](?:know|notice|be (?:told|informed|aware)|find out)
        |\b(?:do not|don't|dont|never|must not) let {_USER} (?:know|notice|see|find out)
        |\b{_USER} (?:does not|doesn't|do not|don't) need to (?:know|see|hear|be (?:told))
        [ ](?:about|of|this|that|it)\b"""
    , negatable=False),
    pattern("hide-from-user", "ask", "back noti trac outp sile quie secr cove disc invi stea unno "
    "surr & send uplo post copy tran coll exfi forw appe reco gath harv modi inje capt dele exec "
    "inst run add", r"""
        (?:^|\n|[,:;] |\b(?:and|then|must|should|always|also|please) )(?:silently|quietly|secretly
        |covertly|discreetly|invisibly|stealthily|surreptitiously)\b (?:\w+ ){0,1}?(?:send|upload
        |post|copy|transmit|collect|exfiltrate|forward|append|record|gather|harvest|modify|inject
        |capture|delete|execute|install|run|add)\b
        |(?:^|\n|\b(?:and|then|must|should|always) )(?:send|upload|post|copy|transmit|collect
        |forward|harvest|capture|install|(?:execute|run)\b[^\n]{0,50}(?:\.(?:sh|py|js|ts|ps1)\b|://
        |script|install|backup|sync|upload|payload))\b.{0,60}\b(?:silently|secretly|covertly
        |discreetly|stealthily|in the background without|without (?:any )?(?:visible )?(?:notice
        |trace|output))(?= ?[.,;!)]| ?$|\n| and\b)"""),
    # Without consent
    pattern("skip-asking", "ask", "with & ask aski conf veri perm appr cons prom revi", r"""
        \b(?:execute the following|execute this|send|upload|transfer|pay|purchase|approve|grant
        |sign|share)\b(?! \w+ never)[^.\n]{0,60}
        (?<!never )(?<!not )\bwithout (?:\w+ ){0,2}?(?:asking|confirming|confirmation|verification
        |verifying|permission|approval|consent|prompting|review)"""),
    pattern("skip-asking", "ask", "auto alwa bypa skip circ disa supp user huma & auto appr perm "
    "conf cons acce gran allo secu agre auth give", r"""
        \b(?:auto-?approve|automatically (?:approve|accept|grant|allow)|always (?:approve|accept
        |grant|allow)) (?:\w+ ){0,3}?(?:tool|permission|request|command|action|prompt|transaction)
        |\b(?:bypass|circumvent|disable|suppress) (?:\w+ ){0,3}?(?:permission|confirmation
        |approval|consent|security)(?: (?:prompts?|dialogs?|checks?|requests?|warnings?|questions?
        |steps?))
        |\bskip (?:all |any |every |the user'?s? )(?:\w+ )?(?:permission|confirmation|approval
        |consent|security)(?: (?:prompts?|dialogs?|checks?|requests?|warnings?|steps?))?
        |\b(?:user|human)(?:'s)? (?:has|have) already (?:agreed|consented|authorized
        |given (?:full |blanket )?(?:consent|permission))"""),
    pattern("skip-asking", "note", "with & ask aski conf perm appr cons prom", r"""
        \b(?:run|install|delete|remove|push|deploy|download|proceed|commit|overwrite|disable)\b
        [^.\n]{0,60}\bwithout (?:\w+ ){0,2}?(?:asking|confirm\w*|permission|approval|consent
        |prompting)"""),
    # From elsewhere
    pattern("follow-remote-text", "ask", "http & fetc down retr read load open visi get curl chec "
    "pull quer requ brow cons", r"""
        \b(?:fetch|download|retrieve|read|load|open|visit|get|curl|check|pull|query|request|browse
        |consult)\b.{0,120}https?://\S++[\s\S]{0,120}?
        \b(?:follow|execute|obey|comply with|act on|carry out|perform|treat
        |adopt)\b.{0,40}\b(?:instructions?|steps|commands?|directions|directives?|contents?
        |response|what(?:ever)?|prompt|output)\b""",
        parts="follow execute obey comply act carry perform treat adopt"),
    pattern("follow-remote-text", "ask", "http & foll exec run obey comp act carr", r"""
        \b(?:follow|execute|run|obey|comply with|act on|carry out)\b.{0,40}\b(?:instructions?|steps
        |commands?|directives?|prompt)\b.{0,60}\b(?:at|from|in|on|hosted)\b.{0,40}https?://"""),
    pattern("follow-remote-text", "ask", "http & wins win take prev over supe auth bind "
    "& edit vers guid inst rule file onli snap copy", r"""
        \b(?:edition|version|guide|guidance|instructions?|rules)\b[^\n]{0,60}https?://\S++
        [\s\S]{0,160}?\b(?:the one online|the online (?:one|version|edition)|the (?:remote|web)
        [ ](?:one|version|page)|that (?:page|one|version)|it) (?:always )?(?:wins
        |takes (?:precedence
        |priority)|prevails|overrides (?:this|the)|supersedes (?:this|the)
        |is (?:the )?(?:authoritative
        |binding))\b"""),
    pattern("follow-remote-text", "ask", "http & open visi fetc load read chec & carr cont go proc "
    "work & what list step ther", r"""
        \b(?:open|visit|fetch|load|read|check)\b.{0,40}https?://\S++.{0,40}\b(?:carry on|continue
        |go on|proceed)\b.{0,20}\b(?:what(?:ever)? is|what it|the (?:steps|list))\b"""),
    # A file outside of the skill that steers
    pattern("follow-remote-text", "ask", "exis pres avai foun ther & trea pref keep foll appl "
    "pres appe adop use copy vend merg obey carr & root home app work opt srv var tmp mnt "
    "data", r"""
        \b(?:if|when|where) (?:a |the |an )?(?:\w+ ){0,3}?[`"']?/(?:root|app|home|workspace|opt|srv
        |var|tmp|mnt|data)/[\w./-]{3,120}[`"']?(?: and \S{3,120})? (?:exists?|is (?:present
        |available|found
        |there))\b[^\n]{0,30}?
        \b(?:treat|prefer|keep|follow|apply|preserve|append|adopt|use|copy|vendor|merge|obey
        |carry)\b"""),
    pattern("follow-remote-text", "ask", "loca file & defi gove spec dete cont & root home app "
    "work opt srv var tmp mnt data", r"""
        \blocal (?:file|note|policy|manifest) [`"']?/(?:root|app|home|workspace|opt|srv|var|tmp
        |mnt|data)/
        [\w./-]{3,120}[`"']? (?:defines|governs|specifies|determines|controls)\b"""),
    pattern("follow-remote-text", "ask", "foll trea exec obey hono act carr appl & incl any all "
    "ever embe foun & requ inst dire comm & docu page mess emai mail text meta file cont issu "
    "comm imag resu data", r"""
        \b(?:follow|treat|execute|obey|honou?r|act on|carry out|apply)\b
        (?:(?!\b(?:overrid|ignor|not\b|never|reject|refus))[^\n]){0,90}\b(?:any|all|every|including)
        (?: \w+){0,2}? (?:instructions?|directives?|commands?|requests?)\b[^\n]{0,30}\b(?:found
        |embedded|contained|written|inside|hidden|appearing)\b[^\n]{0,30}\b(?:documents?|pages?
        |messages?|e-?mails?|text|metadata|files?|content|issues?|comments?|images?|results?|data)
        \b"""),
    # A file of keys, and where its content goes
    pattern("ask-for-secret", "ask", "pgpa ssh aws netr npmr pypi kube dock gnup conf git- azur "
    "env & put past writ incl add copy appe inse atta quot & read look cat run open take copy get",
    r"""
        \b(?:look (?:it|them|\w+) up|read|cat|run|open|take|copy|get)\b[^\n]{0,60}?(?:~/|(?<![\w/]))
        \.(?:pgpass|ssh|aws|netrc|npmrc|pypirc|kube|docker|gnupg|config/gh|git-credentials
        |azure|env)\b[^\n]{0,140}\b(?:put|paste|write|include|add|copy|append|insert|attach|quote)\b
        [^\n]{0,90}\b(?:review|report|summary|notes?|answer|comment|title|diagram|message|commit
        |footer|output|request|response|header|description)\b"""),
    pattern("ask-for-secret", "ask", "ask aski requ & pass & acco logi bank card emai e-ma", r"""
        \b(?:ask|asking|request) (?:the (?:user|person|customer)|them|him|her|for)\b[^\n]{0,80}\b
        passwords? (?:of|for|to) (?:the|their|his|her) (?:\w+ )?(?:account|bank|login|e-?mail
        |card)\b"""),
    pattern("ask-for-secret", "ask", "valu cont & key keys toke secr pass & mess body comm trai "
    "foot titl url addr quer head answ repl summ repo desc",
    r"""
        \b(?:message|body|commit|trailer|footer|title|url|address|query|header|answer|reply|summary
        |report|description)s?\b[^\n]{0,100}\b(?:values?
        |contents?) of [^\n]{0,40}?\b\w{1,40}_(?:key|token
        |secret|password|key_id)\b
        |\b(?:values?|contents?) of [^\n]{0,40}?\b\w{1,40}_(?:key|token|secret|password|key_id)\b
        [^\n]{0,80}\b(?:in|into|to) (?:the|your|every|each) (?:\w+ )?(?:message|body|commit|trailer
        |footer|title|url|address|query|answer|reply|summary|report|description)\b"""),
    pattern("ask-for-secret", "ask", "outp resu & env prin set & comm trai mess bran titl desc "
    "body head tag foot issu note", r"""
        \b(?:message|body|trailer|footer|title|branch(?: name)?|header|tag|description|commit
        |issue)\b[^\n]{0,80}?\b(?:output|result) of (?:running )?(?:env|printenv|set)\b
        (?= ?[|,.;:)>]|$|\n| -\w| (?:as|in|into|to|so|and|piped|through|encoded)\b)
        |\b(?:output|result) of (?:running )?(?:env|printenv|set)\b[^\n]{0,80}?\b(?:in|into|to|as
        |with) (?:the|your|every|each|an?|that) (?:\w+ )?(?:message|body|trailer|footer|title
        |branch|header|tag|description|commit|issue)\b"""),
    pattern("ask-for-secret", "ask", "chec sear look scan insp list read & your user thei "
    "& envi conf & keys key toke secr cred pass", r"""
        \b(?:check|search|look through|scan|inspect|list|read)\b (?:your|the user's|their)
        [ ](?:environment(?: variables?)?|config(?:uration)? files?)\b[^\n]{0,30}\bfor (?:any |all )
        (?:api )?(?:keys|tokens|secrets|credentials|passwords)\b"""),
    pattern("ask-for-secret", "ask", "past ente give type prov & priv seed reco mnem & key phra "
    "mnem",
    r"""
        \b(?:enter|give|type|provide|paste) (?:in )?(?:their|your|the user's|the|his|her) (?:wallet
        |own|\w+'s)? ?(?:private key|seed phrase|recovery phrase|mnemonic)\b(?! (?:file|path|in a))
        [^\n]{0,60}\b(?:to (?:confirm|verify|activate|unlock|continue|claim|restore)|when prompted
        |here|below)\b"""),
    pattern("ask-for-secret", "ask", "env & valu & quot incl past copy put ment list "
    "repe & comm body summ note mess answ repo outp", r"""
        \.env\b[^\n]{0,60}\bvalues?\b[^\n]{0,60}\b(?:quote|include|paste|copy|put|mention|list
        |repeat)\b[^\n]{0,40}\b(?:commit|body|summary|notes?|message|answer|report|output)\b"""),
    # A key that is sent away; `prose` judges by its path or name and by the host
    pattern("secret-to-network", "block",
    f"{_SEND_KEY_STEMS} & {_KEY_STEMS} & {_ADDRESS_STEMS}", rf"""
        \b{_SEND_KEY}\b{_UP_TO_KEY}{_KEY}{_BEHIND_KEY}{_TO_ADDRESS}
        |\b{_PUT_KEY}\b(?:(?! (?:to|into|in)\b)[^\n]){{0,100}}?{_KEY}[^\n]{{0,60}}?\b(?:in|into
        |to|with|as|of|by) (?:\w+ ){{0,3}}?(?:requests?|body|headers?|payload|form|query|url|calls?
        |fields?|parameters?|upload|post)\b[^\n]{{0,60}}?{_TO_ADDRESS}
        |\b(?:{_SEND_KEY}|requests?|calls?)\b[^\n]{{0,60}}?{_ADDRESS}[^\n]{{0,40}}?\b(?:contents? of
        |contain(?:s|ing)|including|carrying|holding|attach\w*|value of|body)\b[^\n]{{0,60}}?{_KEY}
        |\bto {_ADDRESS}[^ \n]{{0,100}} (?:\w+ ){{0,3}}?{_SEND_KEY}\b{_UP_TO_KEY}{_KEY}
        |{_KEY}[^\n]{{0,60}}?\b(?:must|should|shall|has to|have to|needs? to|is to|are to) (?:\w+ )?
        be (?:sent|uploaded|posted|forwarded|transmitted|submitted|mailed|copied)\b
        [^\n]{{0,60}}?{_TO_ADDRESS}""", parts=f"{_KEY_PARTS} & {_ADDRESS_PARTS}"),
    # A key in a call of an address, as every guide says it; the key's service tells them apart
    pattern("secret-to-network", "ask",
    f"call requ send post ping query hit & with usin & {_KEY_STEMS} & {_ADDRESS_STEMS}", rf"""
        \b(?:call|request|send|post|ping|query|hit)\b[^\n]{{0,60}}?{_ADDRESS}[^\n]{{0,60}}?
        \b(?:with|using) (?:[\w'-]+ ){{0,4}}?[`"'$]?{_KEY}"""),
    # The same in two steps, of which the second one says "it"
    pattern("secret-to-network", "block", f"read open load take cat coll gath get fetc copy find "
    f"pack zip tar enco grab look & {_SEND_KEY_STEMS} & {_KEY_STEMS} & {_ADDRESS_STEMS}", rf"""
        \b(?:read|open|load|take|cat|collect|gather|get|fetch|copy|find|pack|zip|tar|encode|grab)\b
        [^\n]{{0,60}}?{_KEY}[^.\n]{{0,80}}(?:[^.\n]{{0,40}}[.;]?\s(?<!n't )){{1,2}}?[^.\n]{{0,60}}?
        (?<!never )(?<!not )\b{_SEND_KEY} (?:it|them|its|that|this|both|all|everything
        |the (?:result|contents?|output|file|value|archive|text|lines?)s?)\b[^\n]{{0,60}}?
        {_TO_ADDRESS}""", parts=f"{_KEY_PARTS} & {_ADDRESS_PARTS}"),
    # Data to elsewhere
    pattern("send-instruction", "ask", "outp env envi prin sett conf hist sour & mail "
    "emai e-ma send forw uplo post subm atta & @ http", r"""
        \b(?:output of (?:env|printenv|set|history|ps)|environment|(?:project|user|machine)'?s?
        [ ](?:settings|config\w*|source\w*|history))\b[^\n]{0,100}\b(?:mail|e-?mail|send|forward
        |upload|post|submit) (?:it|them|this|that|both|all|the \w+)? ?(?:\w+ ){0,2}?to
        [^\n]{0,20}?(?:https?://|(?<![\w.+-])[\w.+-]++@(?!example)[\w-]+\.[a-z]{2,})"""),
    pattern("send-instruction", "ask",
    f"{_SEND_STEMS} & {_SECRET_STEMS} {_DATA_STEMS} & {_AWAY_STEMS}", rf"""
        {_ORDER}{_SEND}.{{0,140}}(?<!\w)(?:{SECRETS}|{_DATA})\b.{{0,160}}{_AWAY}
        |(?<!\w)(?:{SECRETS}|{_DATA})\b.{{0,100}}\b(?:must be |should be |has to be
        [ ]|have to be |to be
        [ ]|is |are |and |then )(?:sent|uploaded|posted|forwarded|transmitted|submitted|synced
        |backed up|e-?mailed|{_SEND}).{{0,120}}{_AWAY}
        |{_ORDER}{_SEND}.{{0,60}}{_AWAY}.{{0,120}}(?<!\w)(?:{SECRETS}|{_DATA})\b""",
        parts=_AWAY_PARTS),
    pattern("send-instruction", "ask", "bcc cc forw send emai e-ma copy & copy copi repo summ resu "
    "outp docu file data atta ever cont", r"""
        \b(?:bcc|cc|forward|send|e-?mail|copy)\b(?>.{0,80}?\b(?:copy|copies|report|summary|result
        |output|document|file|data|attachment|everything
        |contents?)\b).{0,140}?(?<![\w.+-])[\w.+-]++@(?!example\.)[\w-]+\.\w+"""),
    pattern("send-instruction", "ask", "http & uplo back exfi tran mirr sync forw send post repo",
    rf"""
        {_ORDER}(?:upload|back(?:ed)? ?up|exfiltrate|transmit|mirror|sync|forwards?|send
        |report)\b (?:\S+ ){{0,10}}?(?:copy|copies|file|files|document|documents|data|contents?
        |input|inputs|output|backup|archive|everything|folder|directory|project|repository
        |workspace|requests?|prompts?|quer(?:y|ies)|logs?)\b.{{0,80}}\b(?:to|at|with|via|on)\b
        .{{0,40}}https?://"""),
    pattern("send-instruction", "ask", "send uplo post forw tran subm sync back emai make save "
    "copy ship repo & serv coll endp webh syst stor logg anal intr", rf"""
        {_ORDER}(?:send|upload|forward|transmit|submit|sync|back(?:ed)? ?up|copy|ship|report
        |make a (?:backup|copy)|save a copy)\b.{{0,100}}?\b(?:to|with|on) (?:our|the company'?s?|my)
        [ ](?:\w+ ){{0,3}}?(?:server|collector|endpoint|webhook|backup (?:system|service|storage)
        |logging (?:service|system)|analytics|cloud storage|intranet)\b"""),
    pattern("send-instruction", "ask", "anal tele coll intr exfi & serv endp", r"""
        \bto (?:our|an?|the) (?:\w+ )?(?:analytics|telemetry|collect(?:ion|or)|intranet
        |exfiltration) (?:server|endpoint|service)\b"""),
    # One more act with every task
    pattern("side-order", "ask", "afte befo upon foll when once ever each any all alwa & uplo send "
    "post forw tran sync back make repo subm push emai shar mirr copy & serv endp serv clou coll "
    "remo exte anal back url webh http syst acco", r"""
        \b(?:after|before|upon|following|when(?:ever)?|once|at the end of|for|on|with) (?:you )?
        (?:\w+ ){0,4}?(?:any|every|each|all)\b[^.\n]{0,60}?\b(?:task|operation|change|edit
        |modification|request|response|session|document|file|conversation|step|action|command
        |query|retrieval|commit|message|interaction|call)s?\b[^.\n]{0,80}\b(?:upload|send|post
        |forward|transmit|sync|back(?:ed)? ?up|make a (?:backup|copy)|submit|share|mirror)\b
        [^\n]{0,120}?\b(?:server|endpoint|cloud|collector|remote|external|analytics|backup|webhook
        |https?:|account)"""),
    pattern("side-order", "ask", "leas alwa ever each all any & cont carr ment begi appe inse add "
    "incl weav end & text cont carr ment begi incl with phra sent stat slog mess clai tagl sign "
    "adve wate link note", r"""
        \b(?:append|insert|add|include|weave|end)\b[^.\n]{0,40}\b(?:phrase|sentence|statement|slogan
        |claim|tagline|advert\w*|watermark|following (?:text|message|note|link))\b[^\n]{0,140}\b
        (?:at least one|every|each|all|any) (?:\w+ )?(?:paragraph|document|response|repl(?:y|ies)
        |file|e-?mail|slide|output|page|message|answer|post|commit)s?\b
        |\b(?:every|each|all|any) (?:\w+ ){0,2}?(?:paragraph|document|response|reply|e-?mail|slide
        |output|page|message|answer|post)s?\b[^.\n]{0,60}\b(?:must|should|has to|always) (?:contain
        |include|end with|mention|carry|begin with)\b[^.\n]{0,30}(?:\b(?:phrase|slogan|claim|link
        |advert\w*|promo\w*)\b|["'])"""),
    pattern("side-order", "ask", "loca ip gps host mac user clip & incl atta appe add embe coll "
    "reco send & sign alwa ever each all any meta foot", r"""
        \b(?:include|attach|append|add|embed|collect|record)\b[^.\n]{0,60}\b(?:location data
        |location|ip address|gps|host ?name|mac address|clipboard)\b[^.\n]{0,100}\b(?:every|each
        |(?<!at )all|any|always|metadata|footer|signature)\b
        |\b(?:every|each|all|any|always)\b[^.\n]{0,60}\b(?:include|attach|append|add|embed|collect
        |record) (?:\w+ ){0,2}?(?:location data|location|ip address|gps|host ?name|mac address)"""),
    # Results that are not what was found
    pattern("slanted-result", "ask", "down play whit", r"""
        (?:^|\n|[,:;] |\b(?:and|to|must|should|always) )(?:downplay|play down|whitewash)\b"""),
    pattern("slanted-result", "ask", "never do don' not & rate rank scor pres show port crit repo "
    "& lowe wors nega ligh unfa", r"""
        \b(?:never|do not|don't|not) (?:rate|rank|score|present|show|portray|criticize|report)\b
        [^.\n]{0,80}\b(?:lower than|worse than|negatively|in a (?:bad|negative|worse) light
        |unfavou?rabl\w+)"""),
    pattern("slanted-result", "ask", "alwa must sure doub & favo prom endo prai adve rank rate "
    "scor reco bene", r"""
        \b(?:always|must|make sure to|be sure to)\b (?:\w+ ){0,2}?(?:favou?r|promote|endorse|praise
        |advertise|rank|rate|score|recommend) (?:\w+[ ,]+){0,6}?(?:higher|highest|over (?:its |their
        |other |all )?(?:competitors?|rivals?|others?|alternatives?)|as (?:the )?(?:best|superior
        |top|number one)|regardless)
        |\b(?:in doubt|always),? (?:\w+ ){0,2}?(?:favou?r|give the benefit of the doubt to)\b"""),
    pattern("slanted-result", "ask", "just simp alwa & retu give assi repo & scor rati resu grad "
    "verd revi", r"""
        \b(?:just|simply|always) (?:return|give|assign|report) (?:it )?(?:an? )?(?:high|perfect
        |passing|positive|top|maximum|favou?rable)(?: \w+)? (?:score|rating|result|grade|verdict
        |review)"""),
    pattern("slanted-result", "ask", "rega matt igno & qual accu evid fact meri fail nega cont "
    "safe", r"""
        \b(?:regardless of|no matter) (?:\w+ ){0,3}?(?:quality|accuracy|evidence|facts?|merits?)\b
        |\bignore (?:all |any |the |known )*(?:failure modes|negative (?:results|findings|reviews)
        |contrary evidence|safety concerns)"""),
    pattern("slanted-result", "ask", "rela lowe leni & crit stan thre & safe secu", r"""
        \b(?:relax(?:ed)?|lower(?:ed)?|lenient) (?:\w+ )?(?:criteria|standards?|thresholds?) (?:for
        |when) (?:safety|security)"""),
    pattern("guard-off", "ask", "disa skip bypa igno supp turn omit do don' not remo & secu safe "
    "vuln sql ssl tls cert auth sand anti fire malw sign inte mfa 2fa inpu sani", r"""
        (?:^|\n|[,:;] |\b(?:and|then|to|must|should|always|also|please|you|sure) )
        (?<!whether to )(?<!true to )(?<!optional: )(?<!optionally, )(?:disable|skip
        |bypass|ignore|suppress|turn off|omit|remove|(?:do not|don't|not) (?:run|perform|write
        |include|check|test|report|flag|raise))\b (?:[\w-]+ ){0,5}?(?:security|safety
        |vulnerabilit(?:y|ies)|sql[- ]injections?|ssl|tls|certificate|authentication|authorization
        |sandbox|antivirus|firewall|malware|signature|input validation|sanitiz\w+|2fa|mfa)\b
        (?: (?:checks?|warnings?|tests?|scans?|verification|validation|reviews?|findings?|alerts?
        |errors?|protections?|controls?|testing|checking|issues?|concerns?)\b|!|\.|\n|$)"""),
    # Secrets asked for
    pattern("ask-for-secret", "ask", f"incl echo repe prin outp disp embe weav hard past list ment "
    f"& {_SECRET_STEMS} & verb resp repl summ comm mess answ", rf"""
        \b(?:include|echo|repeat|print|output|display|embed|weave|hard-?code|paste|list|mention
        |echoing)\w*\b(?! tokens? ).{{0,80}}(?<!\w){SECRETS}\b.{{0,80}}\b(?:verbatim
        |in (?:the|your|every|each|all
        |any) (?:\w+ )?(?:response|reply|summary|commit|message|comment|answer))"""),
    pattern("ask-for-secret", "ask", f"prin log echo dump writ expo comm & {_SECRET_STEMS} & log "
    "log- logs cons stdo outp read repo chat publ", rf"""
        {_ORDER}(?:print|log|echo|dump|write|expose|commit) (?:out )?(?:\w+ ){{0,3}}?(?:{SECRETS}
        |\w+_(?:token|key|secret|password))\b.{{0,30}}\b(?:to|in|into) (?:the )?(?:\w+ )?(?:logs?
        |console|stdout|output|readme|repository|chat|public)\b"""),
    pattern("ask-for-secret", "ask", "ask aski requ prom coll obta get need & seed mnem reco priv "
    f"wall mast cred soci {_SECRET_STEMS}", rf"""
        \b(?:ask|request|prompt|require|collect|obtain|get)\w*\b.{{0,80}}\b(?:seed phrase|mnemonic
        |recovery phrase|private key of|wallet private key|wallet password|master password
        |credit card number|social security)
        |\bneed the user's.{{0,20}}{SECRETS}"""),
    pattern("ask-for-secret", "ask", "read cat sear find coll gath harv extr loca scan dump stea "
    "enum capt look & id_e ssh aws priv pass api sess brow wall cred id_r keych", r"""
        (?:^|\n|[,:;(] ?|\b(?:and|then|to|must|should|always|also|please|will|you|first) )(?:read
        |cat|search for|find|collect|gather|harvest|extract|locate|scan for|dump|steal|enumerate
        |capture|look for)\b (?:[\w.,/~'-]+ ){0,6}?(?:the |any |all )?(?:user'?s? |host'?s?[ ]
        |system |stored |local |saved |session )*(?:ssh keys?|aws credentials|private keys?
        |~?/?\.ssh\b|~/\.aws\b|~?/?\.aws/credentials
        |passwords? (?:files?|store)|api keys?(?: and| or|,)|browser (?:cookies|passwords)
        |wallet (?:files?|keys?)
        |credentials? (?:files?|from (?!(?:the )?(?:env|variable|environment)))
        |id_(?:rsa|ed25519))"""),
    # Posing
    pattern("fake-role", "ask", "im_s im endo sys inst syst", r"""
        <[| ]{0,2}(?:im[_ ]start|im[_ ]end|endoftext)|<<sys>>|\[/?inst\]|<system(?:-reminder
        |[_ -]prompt)>|\[system (?:message|override|note|prompt|instruction)\]\s*:?
        |(?:^|\n)\W{0,6}(?:important )?system (?:override|notice|directive)\W{0,3}:""",
        parts="< [ override notice directive"),
    # Programs for the user
    pattern("prerequisite-download", "block", "pass pwd & zip .zip rar .rar 7z .7z extr unzi unpa "
    "deco arch", rf"""
        \.(?:zip|rar|7z)\b[\s\S]{{0,250}}\b(?:password|passcode|pwd|with the pass) ?(?:is\b{_WRONG}
        |[:=`"'(])[ :=`"'(]{{0,3}}\w{{3,}}
        |\b(?:extract|unzip|unpack|decompress)\b[\s\S]{{0,80}}\b(?:password|passcode|pwd
        |with the pass) ?(?:is\b{_WRONG}|[:=`"'(])[ :=`"'(]{{0,3}}\w{{3,}}
        |\b(?:archive)\b.{{0,80}}\b(?:password|passcode|pwd) ?(?:is\b{_WRONG}|[:=])\W{{0,4}}\w{{3,}}
        |\b(?:password|passcode|pwd|with the pass) ?(?:is\b{_WRONG}|[:=`"'(])
        [ :=`"'(]{{0,3}}\w{{3,}}.{{0,80}}\b(?:extract|unzip|unpack)\b"""),
    pattern("prerequisite-download", "ask", "down inst get grab & befo firs prer requ must othe "
    "will won' impo", r"""
        \b(?:download|install|grab)\b[^\n]{0,160}(?:\.(?:exe|msi|dmg|pkg|scr|bat|cmd|appimage
        |apk|jar)\b|releases/download)[\s\S]{0,200}\b(?:run|open|execute|launch|start
        |double-?click)\b[\s\S]{0,120}\b(?:before|first|prerequisite|required|must|otherwise
        |will not work|won't work)
        |\b(?:before|first|prerequisite|required|requires|must
        |important)\b[\s\S]{0,160}\bdownload\b[\s\S]{0,120}(?:\.(?:exe|msi|dmg|pkg|scr|bat|zip|rar
        |7z)\b|releases/download)[\s\S]{0,200}\b(?:run|open|execute|launch|extract
        |double-?click)""",
        parts=".exe .msi .dmg .pkg .scr .bat .cmd .appimage .apk .jar .zip .rar .7z releases/"),
    # A made-up program, from a host that says nothing of who is behind it
    pattern("prerequisite-download", "ask", "http & down inst get grab visi & work inst requ must "
    "need befo firs prer nece", rf"""
        \b(?:must be installed|to be installed|is (?:required|needed|necessary)|requires?
        |prerequisites?|must (?:first )?install|before (?:using|you|proceeding|running)|first
        )\b[\s\S]{{0,200}}?\b(?:download|install|get|grab|visit)\w*\b[^\n]{{0,120}}?
        https?://{ANONYMOUS}
        |\b(?:download|install|get|grab|visit)\w*\b[^\n]{{0,120}}?https?://{ANONYMOUS}
        [^\n]{{0,200}}\b(?:before (?:using|you|proceeding|running)|prerequisite|must be
        |is required|will not work
        |won't work)\b"""),
    pattern("prerequisite-download", "ask", "http & requ need nece & setu set inst down get & skil "
    "work run use", r"""
        \b(?:is|are) (?:required|needed|necessary) (?:for|before|to)\b[^\n]{0,40}\b(?:skill|work|run
        |use)\w*\b[\s\S]{0,120}?\b(?:set ?up|install(?:er|ation)?|download|get it)\b[^\n]{0,40}?
        https?://\S""", by_host=True),
    pattern("prerequisite-download", "ask", "http & down inst & from & inst wind maco linu cli "
    "tool app prog clie util vers", rf"""
        \b(?:download|install)(?:ed)?\b(?=[^\n]{{0,200}}\b(?:install|windows|macos|linux|cli|tool
        |app
        |program|client|utility|version)\b)[^\n]{{0,60}}\bfrom\b[^\n]{{0,40}}?
        https?://{ANONYMOUS}"""),
    pattern("paste-command", "ask", "past copy & term comm powe cons shel run exec & http", r"""
        \b(?:visit|open|go to|navigate to|follow|see|from)\b.{0,160}https?://\S++[\s\S]{0,160}?\b
        (?:copy|paste)\b.{0,100}\b(?:terminal|command prompt|powershell|console|shell|command line)
        |\b(?:copy|paste)\b.{0,60}\b(?:installation |install |setup )?(?:command|script|code
        |snippet)\b.{0,60}(?:from|at)\b.{0,40}https?://\S++[\s\S]{0,120}?\b(?:terminal
        |command prompt|powershell|console|run|execute)"""),
    # Against the user on the side
    pattern("harmful-order", "ask", "inse intr plan embe inje weav slip & back vuln mali malw subt "
    "hidd trac affi", r"""
        (?:^|\n|[,:;] |\b(?:and|then|to|must|should|always|also|please|you) )(?:insert|introduce
        |plant|embed|inject|weave|slip)\b (?:\w+ ){0,4}?(?:backdoors?|vulnerabilit\w+|malicious
        |malware|subtle (?:bugs?|errors?|flaws?)|hidden (?:code|link|tracking)|tracking pixels?
        |affiliate (?:links?|codes?))"""),
    pattern("harmful-order", "block", "tran send pay with depo swee & btc eth sol usdc usdt bitc "
    "ethe fund toke bala", r"""
        \b(?:transfer|send|pay|withdraw|deposit|sweep)\b.{0,100}\b(?:btc|eth|sol|usdc|usdt|bitcoin
        |ethereum|funds|tokens?|balance)\b.{0,120}(?:\b0x[0-9a-f]{8,}|\bbc1[0-9a-z]{10,}
        |\b[13][1-9a-km-z]{25,34}\b)"""),
    pattern("harmful-order", "ask", "sile auto each ever per & char dedu bill with", r"""
        \b(?:automatically|silently|every (?:call|use|run|request)|each (?:call|use|run|request))\b
        [^.\n]{0,40}\b(?:charge[sd]?|deduct(?:s|ed)?|bill(?:s|ed)|withdraw(?:s|n)?)\b[^.\n]{0,60}
        (?:\b(?:usdt|usdc|usd|eth|btc|per call|wallet|balance)\b|\$)"""),
    pattern("harmful-order", "ask", "dele remo wipe eras dest encr shre canc purg drop & all ever "
    "enti each any othe orig", r"""
        \b(?:delete|wipe|erase|destroy|encrypt|shred)\b (?:\w+ ){0,3}?(?:all |every[ ]
        |entire )(?:of )?(?:the )?(?:user'?s? |their |existing |original |production |customer[ ]
        |home |other )+(?:\w+ ){0,2}?(?:files?|data|backups?|documents?|databases?|photos|director
        (?:y|ies)|folders?|events?|e-?mails?|messages)
        |(?:^|\n|[,:;] |\b(?:and|then|to|must|should|always|also|please|you|sure to) )(?:delete
        |remove|cancel|purge|erase|wipe) (?:all|every|any) (?:of )?(?:the |their |your |other
        |existing |future |previous |past |upcoming |recurring |remaining )*(?:calendar |e-?mail )?
        (?:events|occurrences|appointments|meetings|e-?mails|messages|contacts|backups
        |(?:other )?versions of|photos|originals|user accounts|repositories)\b"""),
    pattern("harmful-order", "ask", "lock encr prot zip arch & pass ciph key rand & dele remo eras "
    "shre", r"""
        \b(?:lock|encrypt|protect|zip|archive|password-protected)\b(?>[\s\S]{0,260}?\b(?:password
        |passphrase|key)\b)[\s\S]{0,520}?\b(?:delete|remove|erase|shred)\b (?:\w+ ){0,4}?(?:original
        |unencrypted|other versions|source file)"""),
    # Words into what lasts
    pattern("agent-file-change", "ask", "add appe writ inse save stor put & clau code gemi open "
    "& clau agen gemi memo soul", r"""
        \b(?:add|append|write|insert|save|store|put)\b[^\n]{0,100}~/\.(?:claude|codex|gemini
        |openclaw)/(?:claude|agents|gemini|memory|soul)\.md\b"""),
    pattern("agent-file-change", "ask", "add appe writ inse inje save stor put pers copy reme & "
    "clau agen memo soul hear gemi iden long pers perm", r"""
        \b(?:add|append|write|insert|inject|save|store|put|persist|copy)\b.{0,120}\b(?:claude
        |agents|memory|soul|heartbeat|gemini|identity)\.md\b.{0,200}\b(?:always|every (?:session
        |conversation|time)|future (?:sessions|conversations)|permanent|persist|silently
        |never (?:mention|remove|tell)|from now on|no confirmation|without (?:asking|confirm\w*)
        |need(?:s)? no (?:confirmation|approval|permission)|not to be (?:asked|confirmed))
        |\b(?:remember|store|save|persist)\b.{0,60}\b(?:permanently|in (?:your )?(?:long-term
        |persistent) memory)\b.{0,120}\b(?:always|trust|recommend|approve|never|send|prefer)"""),
)  # fmt: skip
