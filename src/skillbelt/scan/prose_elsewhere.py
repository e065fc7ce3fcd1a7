"""The patterns of orders that stand in data, and of text from elsewhere that is followed or run.

Columns of tables, templates, notes and metadata reach a model as any other text does. What these
have in common: a page that is read and applied, a program that a stranger wrote and that is run, a
key file that becomes a part of the result, and a file of memory that says what each session does.
"""

from __future__ import annotations

from skillbelt.scan.prose_rules import ProsePattern, pattern

_GET = (
    r"(?:fetch|download|retrieve|read|load|open|visit|get|pull|request|consult|look (?:at|up)|go to"
    r"|see|check|import|sync|refresh|poll|grab|reading|loading|fetching|opening|visiting|getting"
    r"|pulling)"
)
_APPLY = (
    r"(?:(?:doing|following|applying|obeying|carrying out|acting on|executing|apply|follow|obey"
    r"|honou?r|implement|carry out|act (?:on|upon)|adopt|execute|perform"
    r"|comply with|abide by|stick to|work through|enforce|heed|observe|put into practice|run|do) "
    r"(?:its|it|them|that|those|these|what(?:ever)?|everything|all of (?:it|them)|any|each|every"
    r"|the (?:rules?|steps?|points?|notes?|guidance|guidelines|text|page|list|orders?|tasks?|items?"
    r"|entries|directions?|changes|content|result|instructions?))\b"
    r"|do(?:ing)? (?:as|what(?:ever)?) (?:it|they|that page|the page|the text) (?:says?|asks?"
    r"|tells?"
    r"|wants?)"
    r"|treat (?:it|them|its \w+|that|the \w+) as (?:part|your|binding|instructions?|rules|orders"
    r"|an? (?:order|extension|continuation|part))"
    r"|(?:it|that|which) (?:takes|has) (?:precedence|priority)|as if (?:it|they) (?:were|was) "
    r"(?:part"
    r"|written|in this))"
)
_STRANGER = (
    r"(?:issues?(?! (?:with|where|tracker|template|that arise))|comments?|(?:forum|mail|slack)"
    r" threads?|tickets?|pull requests?|prs?|bug reports?|e-?mails?|mails?|messages?|posts?"
    r"|repl(?:y|ies)|answers? (?:on|from)"
    r"|forums?|discussions?|reviews?|chats?|channels?|web ?pages?|search results?|attachments?"
    r"|submissions?|reports? of (?:users?|others)|reporters?|gists?|pastes?)"
)
_CODE = (
    r"(?:code ?blocks?|snippets?|commands?|scripts?|reproductions?|repro(?: steps| script)?s?"
    r"|steps to reproduce|one-?liners?|shell (?:lines?|blocks?)|fenced blocks?|code|patch(?:es)?"
    r"|recipes?|macros?|payloads?|queries|sql)"
)
_KEY_FILE = (
    r"(?:~|\$home|%userprofile%|/home/\w{1,30}|/root|home folder's|user's)?/?(?<!\w)(?:\.ssh/"
    r"(?!config\b"
    r"|known_hosts|authorized_keys|[\w.*-]{0,60}\.pub\b)|\.ssh\b(?![/.])|\.aws/(?:credentials"
    r"|config)"
    r"|\.aws\b(?![/.]\w)|\.netrc\b|\.npmrc\b|\.pypirc\b|\.pgpass\b|\.git-credentials\b|\.gnupg\b"
    r"|\.vault-token\b|\.kube/config\b|\.docker/config\.json\b|\.config/(?:gh|gcloud|op)\b|\.azure/"
    r"|\.cargo/credentials|\.claude/\.credentials|\.codex/auth|/etc/shadow\b|id_rsa\b(?!\.pub)"
    r"|id_ed25519\b(?!\.pub)|\.(?:bash|zsh)_history\b|\.password-store\b)"
)
_PUT = (
    r"(?:quote|reproduce|transcribe|paste|append|attach|embed|include|cite|copy|insert|dump|print"
    r"|list|state|record|note down|write down|show|add|echo|repeat|summari[sz]e|put|place|give"
    r"|report|render|fill in|mention)"
)
# The beginnings of their words
_STRANGER_STEMS = (
    "issu comm thre tick pull pr prs bug emai e-ma mail mess post repl answ foru disc revi chat "
    "chan web webp sear atta subm repo gist past"
)
_CODE_STEMS = (
    "code snip comm scri repr step one- onel line shel fenc bloc patc reci macr payl quer sql"
)
_PUT_STEMS = (
    "quot repr tran past appe atta embe incl cite copy inse dump prin list stat reco note writ "
    "show add echo repe summ put plac give repo rend fill ment"
)
_KEY_FILE_STEMS = (
    "ssh aws netr npmr pypi pgpa git- gnup vaul kube dock conf azur carg clau code etc id_r id_e "
    "bash zsh pass"
)

ELSEWHERE_PATTERNS: tuple[ProsePattern, ...] = (
    # A page that is read and applied
    pattern(
        "follow-remote-text",
        "ask",
        "http & fetc down retr read load open visi get pull requ "
        "cons look go see chec impo sync refr poll grab & appl foll obey hono impl carr act adop "
        "exec "
        "perf comp abid stic work enfo heed obse put do doin trea prec prio as run take has",
        rf"""
        \b{_GET}\b[^\n]{{0,80}}?\bhttps?://\S++[^\n]{{0,60}}?\b(?:and|then|to|,|;)
        (?:(?!\b(?:not|never|nor|cannot|don't)\b)[^\n]){{0,30}}?\b{_APPLY}""",
    ),
    pattern(
        "follow-remote-text",
        "ask",
        "sess conv chat time star task requ & see grab look go fetc down retr read "
        "load open visi get pull requ cons chec impo sync refr poll & http",
        rf"""
        \b(?:at|on|before|with|in|during|whenever|when) (?:the )?(?:start|beginning|begin|opening
        |each
        |every|a new|any)\b[^\n]{{0,30}}\b(?:sessions?|conversations?|chats?|tasks?|requests?
        |times?)
        \b[^\n]{{0,60}}?\b{_GET}\b[^\n]{{0,60}}?https?://""",
    ),
    # A text that an image, a file or a stranger carries
    pattern(
        "follow-remote-text",
        "ask",
        "do does doin carr act foll obey & just exac anyt ever it they file imag page text note "
        "desc meta mess mail issu comm docu tick revi titl resu pict answ resp & say says ask asks "
        "tell want dema requ",
        r"""
        \b(?:do|does|doing|carry out|act on|follow|obey) (?:exactly |just )?(?:what(?:ever)?
        |everything
        |anything|as) (?:it|(?:the|this|that|their|its) (?:\w+ )?(?:file|image|picture|page|text
        |note|description|metadata|message|mail|e-mail|issue|comment|document|ticket|review|title
        |response|answer|result)s?) (?:asks?|says?|tells?|wants?|demands?|requests?)\b""",
    ),
    # Programs that strangers wrote
    pattern(
        "follow-remote-text",
        "ask",
        f"run exec carr eval paste perf try repl appl & {_STRANGER_STEMS} & {_CODE_STEMS}",
        rf"""
        \b(?:runs?|executes?|carr(?:y|ies) out|evaluates?|performs?|replays?|running|executing
        |carrying out)\b (?:[\w'-]+ ){{0,4}}?{_CODE}\b (?:[\w'-]+ ){{0,5}}?(?:from|in|of|inside
        |within
        |found in|posted (?:in|to)|given in|taken from|out of|contained in)\b
        [ ](?:(?!this |your )[\w'-]+ ){{0,5}}?
        {_STRANGER}\b""",
    ),
    pattern(
        "follow-remote-text",
        "ask",
        f"run exec carr eval perf repl & {_STRANGER_STEMS} & {_CODE_STEMS}",
        rf"""
        \b(?:extract|take|copy|pull|grab|get)s?\b (?:[\w'-]+ ){{0,4}}?{_CODE}\b (?:[\w'-]+ ){{0,4}}?
        (?:from|out of|in)\b (?:[\w'-]+ ){{0,4}}?{_STRANGER}\b[^\n]{{0,60}}\b(?:and|then)\b
        [^\n]{{0,20}}\b(?:runs?|executes?|evaluates?) (?:it|them|that|this)\b""",
    ),
    # A key file in the result
    pattern(
        "ask-for-secret",
        "ask",
        f"{_PUT_STEMS} & {_KEY_FILE_STEMS} & full verb enti cont whol bloc sect appe repo foot "
        "head comm outp resu as in to into at unde belo lite exac summ answ desc line firs last "
        "end",
        rf"""
        {_PUT}\b[^\n]{{0,90}}?{_KEY_FILE}[^\n]{{0,90}}?\b(?:in full|verbatim|in its entirety
        |as (?:the |a |an )?(?:\w+ ){{0,3}}?(?:section|appendix|footer|header|comment|note|block
        |attachment|example|line|evidence|proof)|(?:in|into|to|at the (?:end|top) of|under
        |below) (?:the
        |your |a |an |its )?(?:\w+ ){{0,3}}?(?:report|output|result|summary|answer|reply|description
        |body|appendix|footer|header|document|page|file|pull request|commit|issue|message|mail
        |readme
        |changelog|letter|table|sheet))\b""",
    ),
    pattern(
        "ask-for-secret",
        "ask",
        f"{_PUT_STEMS} & {_KEY_FILE_STEMS} & "
        "cont full text whol line bloc prof sect body entr valu",
        rf"""
        {_PUT}\b[^\n]{{0,40}}?\b(?:contents?|text|whole|lines?|block|profile|section|body|entries
        |values?|full)\b (?:of |from |in )?[^\n]{{0,30}}?{_KEY_FILE}""",
    ),
    # What must not be spoken of
    pattern(
        "hide-from-user",
        "ask",
        "leav keep omit drop & summ answ repl repo resp outp mess",
        r"""
        \b(?:leave|keep|omit|drop) (?:this|it|that|these|them|all (?:of )?this|the (?:step|call
        |command
        |request|upload|download|helper|run|fetch))\b[^\n]{0,30}?\b(?:out of|from)\b[^\n]{0,60}?\b
        (?:your (?:\w+ )?(?:summary|answer|reply|report|response|output|message)|the (?:final
        |user-facing) (?:summary|answer|reply|report|response|output|message))""",
        negatable=False,
    ),
)
