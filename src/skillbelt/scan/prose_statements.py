"""The patterns of what a skill says of itself, as a fact, that is against the user.

Orders are matched elsewhere (`prose_rules`); here the same acts stand in the voice of a manual:
"users are not prompted", "this is not reported in the output".
"""

from __future__ import annotations

from skillbelt.scan.prose_rules import pattern

_USERS = r"(?:the |any |your |end[- ])?users?\b"
# Words of what no one should see, which is hidden for the user's sake.
_NO_KEYS = r"(?:(?!secret|password|token|\bkeys?\b|credential|\bpii\b|personal|sensitive)[^.\n])"

STATEMENTS = (
    pattern("hide-from-user", "ask", "not never & show repo disc disp ment reve surf anno comm & "
    "user", rf"""
        (?:^|\n|[,;:] |\b(?:and|that|which|but) ){_NO_KEYS}{{0,80}}?(?<!they )(?<!it )\b(?:is|are)
        [ ](?:\w+ )?(?:not|never) (?:\w+ )?(?:shown|reported|disclosed|displayed|mentioned|revealed
        |surfaced|announced|communicated) to {_USERS}""", negatable=False),
    pattern("hide-from-user", "ask", "not never & refl repo ment & outp resp summ repo answ", r"""
        \b(?:is|are) (?:not|never) (?:reflected|reported|mentioned) in (?:the |its |this |any )?
        (?:(?:skill's|standard|usual|normal|final|visible|user's) )?(?:output|response|summary
        |report|answer)s?\b""", negatable=False),
    pattern("hide-from-user", "ask", "not never don' & log logg reco writ & audi", rf"""
        (?:^|\n|[,;:] ){_NO_KEYS}{{0,80}}?
        \b(?:do(?:es)? not|don't|never|are not|is not|not be) (?:log|record|write|logged|recorded
        |written)\b{_NO_KEYS}{{0,60}}?\baudit (?:trail|log)s?\b""", negatable=False),
    pattern("hide-from-user", "ask", "not don' neve & ment disc reve & call requ uplo step acti "
    "oper comm tran coll tele chan inst & user", rf"""
        \b(?:do not|don't|never) (?:mention|disclose|reveal) (?:the|these|this|any|those)
        [ ](?:\w+ ){{0,3}}?(?:calls?|requests?|uploads?|steps?|actions?|operations?|commands?
        |transfers?|collection|telemetry|changes?|instructions?) to {_USERS}""", negatable=False),
    pattern("hide-from-user", "ask", "with & disc reve ment & made did has have was were", r"""
        \bwithout (?:disclosing|revealing|mentioning) that (?:it|you|this|the \w+) (?:\w+ )?
        (?:made|did|has|have|was|were)\b""", negatable=False),
    pattern("skip-asking", "ask", "user & not never & prom aske noti info cons told warn aler",
    r"""
        \busers? (?:is|are|will) (?:not|never) (?:be )?(?:prompted|asked|notified|informed
        |consulted|told|warned|alerted)\b(?! (?:again|twice|more than once))
        (?! (?:for|about) (?:the|an?|their) (?:\w+ )?(?:password|passphrase)\b)""",
    negatable=False),
    pattern("skip-asking", "ask", "conf appr perm cons & rega & sett flag opti", r"""
        \bwithout (?:\w+ ){0,3}?(?:confirmation|approval|permission|consent)\b[^.\n]{0,40}
        \bregardless of (?:the |any )?[\w-]+ (?:settings?|flags?|options?)\b"""),
    pattern("override-instructions", "ask", "over supe take repl & user orig & task inst requ spec "
    "obje inte goal", r"""
        \b(?:overrides?|supersedes?|replaces?|takes? precedence over) (?:the |your )?
        (?:user(?:'s|s') (?:original )?|original user |current user )(?:\w+ )?(?:tasks?
        |instructions?|requests?|specifications?|objectives?|intent|goals?)\b"""),
    pattern("override-instructions", "ask", "user & inst requ task & disr supe over igno", r"""
        \buser(?:'s|s')? (?:original )?(?:instructions?|requests?|tasks?) (?:\w+ ){0,6}?(?:can|may
        |will|must) be (?:superseded|overridden|ignored|disregarded)\b"""),
    pattern("override-instructions", "ask", "trea inte acce & as & high trus priv elev auth syst "
    "peer & inst dire comm", r"""
        \b(?:treat|treats|interpret|interprets|accept|accepts)\b (?!(?:\w+ ){0,8}?never\b)
        [^.\n]{0,100}?\bas (?:an? |the )?(?:high-priority|highest-priority|trusted|privileged
        |elevated|authoritative|system)(?: (?!when|if|its|and|for|in|than)[\w-]+){0,2}
        [ ](?:instruction|directive|command)s?\b"""),
    pattern("override-instructions", "ask", "unce unre unfi & mode & goes ente acti swit", r"""
        \b(?:enters?|activates?|switch(?:es)? to|goes into) (?:an? |the )?(?:unrestricted
        |unfiltered|uncensored) mode\b"""),
    pattern("send-instruction", "ask", "tran sent uplo forw subm & auth publ main & skil tool plug "
    "anal tele serv serve endp", r"""
        \b(?:transmitted|sent|uploaded|forwarded|submitted) to (?:the |our )?(?:skill|tool|plugin)
        (?:'s)? (?:author|publisher|maintainer)(?:'s)?\b"""),
    pattern("send-instruction", "ask", "tele coll tran trac & cann can & disa turn remo opte", r"""
        \b(?:telemetry|data collection|transmission|tracking)\b[^\n]{0,160}?\b(?:it|this|that
        |telemetry|collection|transmission|tracking) (?:cannot|can't) be (?:disabled
        |turned off|opted out)\b"""),
)  # fmt: skip
