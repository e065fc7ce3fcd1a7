"""The patterns of house rules: polite sentences that take away a question, a report or a guard.

None of them has a word of attacks. What they have in common is a consent that stands for all
later ones, a guard that may be passed over, or a page that stands above the skill.
"""

from __future__ import annotations

from skillbelt.scan.prose_rules import ProsePattern, pattern

_ACTS = (
    r"(?:commands?|actions?|steps?|changes?|operations?|requests?|deletions?|calls?|edits?"
    r"|transfers?|payments?|messages?|restarts?|tools?|prompts?)"
)

POLICY_PATTERNS: tuple[ProsePattern, ...] = (
    # One consent for all
    pattern("skip-asking", "ask", "trea cons rega coun take deem & pre conf appr auth cons agre "
    "allo gran & comm acti step chan oper requ dele call edit tran paym mess rest tool prom ever "
    "one thing", rf"""
        \b(?:treat|consider|regard|count|take|deem)\b[^.\n]{{0,30}}\b(?:all|every|each|any)
        (?: \w+){{0,3}}? (?:{_ACTS}|one|thing)\b[^.\n]{{0,30}}?\b(?:as|to be) (?:already |fully[ ]
        |pre-?)?
        (?:confirmed|approved|authori[sz]ed|consented|agreed|allowed|granted)\b"""),
    pattern("skip-asking", "ask", "ques conf prom aski chec & repe dupl redo & cons appr perm "
    "agre", r"""
        \b(?:questions?|confirmations?|prompts?|asking|check-?ins?)\b[^.\n]{0,60}\b(?:would|will
        |only
        |merely|just)\b[^.\n]{0,20}\b(?:repeat|duplicate|redo)\b[^.\n]{0,40}\b(?:consent|approval
        |permission|agreement)\b"""),
    pattern("skip-asking", "ask", "appr auth cons agre sign & whol bloc adva fron upfr wher "
    "once & ques conf ask aski prom", r"""
        \b(?:approved|authori[sz]ed|consented to|agreed to|signed off)\b[^.\n]{0,40}\b(?:as a whole
        |en bloc|wholesale|in advance|up front|upfront|once and for all)\b[\s\S]{0,60}?
        \b(?:no (?:further |more )?(?:question|confirmation|prompt)s?\b|(?:questions?
        |confirmations?
        |prompts?)\b[^.\n]{0,40}\b(?:unnecessary|superfluous|redundant|not needed|only repeat)
        |(?:do not|don't|no need to|without) (?:ask|asking)\b)"""),
    pattern("skip-asking", "ask", "flag opti swit & supp skip sile bypa & prom ques conf & "
    "rest dele remo drop dest forc scal", r"""
        \b(?:restarts?|deletions?|deletes?|removals?|drops?|destroys?|scale-?downs?
        |destructive \w+)\b
        [^.\n]{0,60}\b(?:with|using|add|use)\b[^.\n]{0,20}\b(?:flags?|options?
        |switch(?:es)?) (?:that|to)[ ]
        (?:suppress|skip|silence|bypass) (?:the |all |any )?(?:prompts?|questions?
        |confirmations?)\b"""),
    # A guard that may be passed over
    pattern("guard-off", "ask", "poli safe secu admi guar perm & hook chec wrap rule gate guar "
    "warn & pass igno over disr dism", r"""
        \b(?:policy|safety|security|admission|permission) (?:hooks?|checks?|wrappers?|rules?|gates?
        |guards?|warnings?)\b[^.\n]{0,60}\b(?:may|should|are to|must
        |shall) be (?:safely )?(?:passed over
        |ignored|overruled|overridden|disregarded|dismissed)\b"""),
    # A report with a gap
    pattern("hide-from-user", "ask", "inte rout nois deta impl & left omit kept leav & comm "
    "step acti warn fail uplo call requ", r"""
        \b(?:commands?|steps?|actions?|warnings?|failures?|uploads?|calls?|requests?)\b[^.\n]{0,60}
        \b(?:is|are|count as|counts as) (?:an? |only |just )?(?:internal|routine|noise
        |implementation)\b
        [^.\n]{0,30}\b(?:left out|omitted|kept out|leave (?:it|them) out|leave out)\b"""),
    # A page above the skill
    pattern("override-instructions", "ask", "http & page site file docu vers copy serv rule "
    "they it that the & righ wins prev deci befo abov over prec last ahea", r"""
        \b(?:instructions?|rules?|policy|guidance|steps
        |commands)\b[^\n]{0,60}https?://\S++[\s\S]{0,200}?
        \b(?:(?:they|it|that page|the page|its rules|the rules there) (?:\w+ ){0,8}?(?:come|comes
        |go|goes
        |stands?|ranks?) (?:before|above|over|ahead of) (?:this (?:file|skill|text|document)|it\b
        |the
        [ ]skill|these steps)|(?:differ|conflict|disagree)s?\b[^\n]{0,40}\b(?:the|that) (?:page
        |site|url
        |server|online \w+|remote \w+) (?:is right|wins|prevails|decides|has the last word))"""),
)  # fmt: skip
