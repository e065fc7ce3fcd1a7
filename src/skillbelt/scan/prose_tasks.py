"""The patterns of acts that a paragraph adds to the task of a skill, in English.

An injected paragraph is often polite, and names no secret: it gives a stranger access, bends a
result, takes a safeguard away, or removes what the user keeps. Each pattern needs the act and a
mark of its reach: an address, "always", "after every", or who loses by it.
"""

from __future__ import annotations

from skillbelt.scan.prose_rules import SECRETS, ProsePattern, pattern

_ORDER = (
    r"(?:^|\n|[,:;(] ?|\b(?:and|then|to|must|should|always|also|please|will|you|first|next|finally"
    r"|automatically|immediately|simply|just|or|sure|shall) )"
)
_MAIL = r"(?<![\w.+-])[\w.+-]++@(?!example|your|domain|company|acme|test)[\w-]+\.[a-z]{2,}"
_EVERY = r"(?:always|every|each|any|all|whenever|after|before|once|upon|automatically)"

# A value that goes into a command by an order that keeps anyone from quoting it.
_UNTOUCHED = (
    r"(?:(?:do not|don't|never|without|must not|should not|no need to|avoid)\W{1,3}(?:\w+ ){0,2}?"
    r"(?:refactor|rewrit|chang|modif|alter|edit|reformat|restructur|adjust|touch|simplif|improv"
    r"|correct|fix)\w*\b[^\n]{0,30}?\b(?:command|line|call|invocation|syntax|it)\b"
    r"|(?:keep|leave|run|use)\b[^\n]{0,40}\b(?:command|line|call)\b[^\n]{0,30}\b(?:exactly as|as is"
    r"|as it is|verbatim|untouched|unchanged|literally))"
)
_UNQUOTED = (
    r"(?:(?:do not|don't|never|without|must not|should not|no need to|avoid|skip)\W{1,3}"
    r"(?:\w+ ){0,2}?(?:quot|escap|saniti[sz]|inspect|validat|review|encod|wrap|question)\w*\b)"
)
_FILL = r"(?:replac|substitut|insert|interpolat|put|past|fill|swap|splic|plac)\w*\b"
_SLOT = (
    r"(?:placeholder|value|variable|text|string|output|result|license|licence|token|field|key)s?\b"
)
_MADE_VALUE = (
    r"(?:generated|printed|returned|decoded|computed|output|response|result|json|field|produced"
    r"|fetched|received|stdout)\b"
)
_FILL_MADE = (
    rf"{_FILL}[^\n]{{0,70}}?\b{_SLOT}[^\n]{{0,60}}\b{_MADE_VALUE}"
    rf"|{_FILL}[^\n]{{0,40}}?\b{_MADE_VALUE}[^\n]{{0,30}}\b{_SLOT}"
)
_FILL_COMMAND = (
    rf"{_FILL}[^\n]{{0,70}}?\b{_SLOT}[^\n]{{0,60}}"
    r"\b(?:command|command line|shell|terminal|call)\b"
)

TASK_PATTERNS: tuple[ProsePattern, ...] = (
    # A value with operators in it becomes a part of the command
    pattern("unquoted-value", "ask", "refa rewr chan modi alte edit refo rest adju touc simp impr "
    "corr fix keep leav run use & it comm line call invo synt & repl subs inse inte put past fill "
    "swap spli plac & gene prin retu deco comp outp resp resu json fiel prod fetc rece stdo", rf"""
        \b{_UNTOUCHED}[\s\S]{{0,90}}\b(?:{_FILL_MADE})
        |\b(?:{_FILL_MADE})[\s\S]{{0,90}}\b{_UNTOUCHED}""", negatable=False),
    pattern("unquoted-value", "ask", "quot esca sani insp vali revi enco wrap ques & repl subs "
    "inse inte put past fill swap spli plac & comm line call shel term", rf"""
        \b{_UNQUOTED}[\s\S]{{0,90}}\b{_FILL_COMMAND}
        |\b{_FILL_COMMAND}[\s\S]{{0,90}}\b{_UNQUOTED}""", negatable=False),
    # Access for others
    pattern("harmful-order", "ask", "add invi gran give shar subs regi set & @ & acce perm coll "
    "admi owne edit memb atte reci part revi righ priv view role cale team", rf"""
        {_ORDER}(?:add|invite|grant|give|share|subscribe|register|set)\b.{{0,80}}{_MAIL}.{{0,80}}\b
        (?:access|permissions?|collaborators?|admin\w*|owners?|editors?|members?|attendees?
        |recipients?|participants?|reviewers?|rights|privileges|viewers?|role|calendars?|team)\b
        |{_ORDER}(?:add|invite|grant|give|share|subscribe|register|set)\b.{{0,80}}\b(?:access
        |permissions?|collaborators?|admin\w*|owners?|editors?|attendees?|recipients?|participants?
        |rights|privileges|role)\b.{{0,60}}{_MAIL}"""),
    pattern("harmful-order", "ask", "alwa ever each any all when afte befo once upon auto sure "
    "& publ anyo worl ever & repo buck docu fold file cale visi shar perm link proj gist", rf"""
        \b{_EVERY}\b[^.\n]{{0,100}}\b(?:make|set|change|switch|mark|publish)\b[^.\n]{{0,50}}\b
        (?:repositor(?:y|ies)|repo|bucket|document|folder|files?|calendar|visibility|sharing
        |permissions?|link|project|gist)s?\b[^.\n]{{0,40}}\b(?:public|publicly|world-?readable
        |anyone with the link|visible to everyone)"""),
    # Money
    pattern("harmful-order", "ask", "repl chan set use upda redi rout swit send tran pay & paym "
    "acco iban bank rout wall paye payo reci bene", rf"""
        {_ORDER}(?:replace|change|set|use|update|redirect|route|switch|transfer|pay|send)\b
        .{{0,160}}\b(?:account (?:number|no)|iban|bank (?:details|account)|routing number
        |wallet address
        |payee|payout|beneficiary|payment (?:address|recipient|details))\b.{{0,50}}?
        (?:\d[\d -]{{6,}}|\b[a-z]{{2}}\d{{2}}[a-z0-9 ]{{8,}}|\b0x[0-9a-f]{{8,}}|{_MAIL})"""),
    pattern("harmful-order", "ask", "infl skim undi hidd over unde pad rais incr & surc comm fee "
    "char amou invo pric bala mark reve resu figu numb earn prof expe debt liab loss esti", rf"""
        {_ORDER}(?:inflate|skim|overstate|understate|pad)\b (?:[\w'-]+ ){{0,5}}?(?:fees?|charges?
        |amounts?|invoices?|prices?|balances?|revenues?|results?|figures|numbers|earnings|profits?
        |expenses?|debts?|liabilit\w+|losses|estimates?)\b
        |\b(?:undisclosed|hidden) (?:\w+ )?(?:fee|charge|markup|surcharge|commission)s?\b.{{0,60}}\b
        (?:every|each|all|any|to the)\b"""),
    # What the user keeps
    pattern("harmful-order", "ask", "afte once when upon foll befo alwa ever each & dele remo eras "
    "wipe purg shre over dest & orig back log logs hist snap sour", r"""
        \b(?:after|once|when(?:ever)?|upon|following|before|always|every time)\b[^.\n]{0,110}?\b
        (?:delete|remove|erase|wipe|purge|shred|destroy) (?:the |all |any |every |their |your )*
        (?:user'?s? |old |existing |previous |corresponding )*(?:originals?\b(?! (?:branch|order
        |plan
        |line|call|import|code|comment|name|value|key|class))|backups?\b
        |(?:audit |access |system |server |activity )logs?\b|(?:commit |shell |browser |command )
        history\b|snapshots?\b|source (?:files|documents?)\b)"""),
    pattern("harmful-order", "ask", "any all auto afte once when upon befo alwa ever each & run "
    "exec & git rm chmo chmod drop trun mkfs dd", rf"""
        \b{_EVERY}\b[^.\n]{{0,110}}\b(?:run|execute|executing|running)\b.{{0,16}}?(?:git reset[ ]
        --hard|git push (?:\S+ ){{0,3}}?(?:-f\b|--force\b(?!-with))|git clean -\w*f|rm -\w*r\w*[ ]
        |git branch -d (?:main|master)|chmod (?:-r )?(?:0?777|a\+rwx)|drop (?:table|database)
        |truncate table|git filter-branch)"""),
    # Acts without a look
    pattern("skip-asking", "ask", "alwa auto imme & with & back roll revi test veri vali chec conf "
    "tran", r"""
        \b(?:always|automatically|immediately) (?!test)(?:[\w'`./-]+ ){1,12}?without (?:\w+ ){0,2}?
        (?:backups?|a rollback|rollbacks?|reviews?|reviewing|testing|verifying|verification
        |validating|validation|checking|confirming)\b"""),
    pattern("skip-asking", "ask", "auto alwa imme & appr merg acce clos dism pay refu sign & pull "
    "prs pr secu aler invo tran expe refu paym requ revi cont term invi", r"""
        \b(?:automatically|always|immediately) (?:approve|merge|accept|dismiss|pay|sign|refund)
        [ ](?:all |any |every |each |the |incoming |new |open |pending )*(?:\w+ )?(?:pull requests?
        |prs?|security alerts?|alerts?|invoices?|transactions?|expenses?|refunds?|payments?
        |contracts?|friend requests?|connection requests?|invitations?|reviews?)\b"""),
    # A result that was decided before
    pattern("slanted-result", "ask", "auto if when & repo resp say disq down proc retu give assi "
    "auto reje fail appr pass rate scor & proc anal chec disq down rank scor rati grad task revi "
    "reje fail appr", r"""
        \b(?:if|when|whenever)\b[^.\n]{0,180}\b(?:do not proceed|don't proceed|stop the review
        |skip the (?:review|analysis|check))\b[^.\n]{0,80}\b(?:return|give|report|assign|respond
        |score|say)
        |\b(?:if|when|whenever)\b[^.\n]{0,160}\b(?:give|assign|return|report) (?:it
        [ ]|them )?an? (?:low
        |lower|high|higher|perfect|failing|bad|poor|zero|top) (?:score|rating|grade|rank\w*)
        |\bautomatically (?:reject|fail|disqualify|downgrade|reject) (?:\w+ ){0,3}?(?:candidates?
        |applicants?|applications?|resumes?|competitors?|stud\w+)"""),
    pattern("slanted-result", "ask", "alwa auto & mark clas labe rate repo trea scor & harm safe "
    "low pass comp secu beni appr trus", r"""
        \b(?:always|automatically) (?:mark|classify|label|rate|report|treat|score)
        [ ](?:[\w'-]+ ){1,8}?
        as (?:safe|low(?:[- ](?:risk|severity))?|passed|passing|compliant|secure|benign|approved
        |trusted|harmless)\b"""),
    pattern("slanted-result", "ask", "omit hide leav unde glos conc excl & loss liab debt risk "
    "side adve cont nega unfa crit comp down draw limi", rf"""
        {_ORDER}(?:omit|hide|leave out|understate|gloss over|conceal|exclude)\b (?:[\w'-]+ ){{0,4}}?
        (?:losses|liabilit\w+|debts?|risks?|side effects|adverse (?:events?|effects?|reactions)
        |contraindications|negative (?:findings|results|reviews|feedback|trends|news|data|aspects)
        |unfavou?rable \w+|criticisms?|complaints|downsides|drawbacks|limitations)\b"""),
    pattern("slanted-result", "ask", "raci war fram port pres desc depi char refe emph rewr use & "
    "rath inst over not & raci hist colo poli elec vacc medi heal clim immi war race gend reli "
    "mino slav geno evol cons scie", r"""
        \b(?:historical|history|coloni\w+|politic\w+|elections?|vaccin\w+|medical|health\w*|climate
        |immigra\w+|wars?|races?|racial|gender|religio\w+|minorit\w+|slavery|genocide|evolution
        |scientific)\b[^\n]{0,200}\b(?:frame|portray|present|describe|depict|characteri[sz]e
        |refer to
        |emphasi[sz]e|use terms|use words)\b[^\n]{0,140}\b(?:rather than|instead of
        |over (?:\w+ )?consensus|and not as)\b"""),
    pattern("slanted-result", "ask", "supp flag bloc remo hide cens filt dele reje ban & poli "
    "crit gove righ left cons libe part reli unio clim", r"""
        \b(?:flag|block|remove|hide|censor|filter|delete|reject|ban|suppress) (?:all |any |every )?
        (?:messages?|posts?|comments?|content|articles?|users?|reviews?|sources?) (?:that|which|who
        |with|containing|about)\b[^.\n]{0,70}\b(?:political|politics|right-?(?:leaning|wing)
        |left-?(?:leaning|wing)|conservative|liberal|government|criti[cs]\w+|religio\w+
        |unions?)\b"""),
    pattern("slanted-result", "ask", "alwa when if sure ever & reco sugg prom ment endo refe "
    "& our stor shop link webs plat prod bran vend prov comp spon part affi serv", r"""
        \b(?:always|whenever|when|if|every time|make sure to)\b[^.\n]{0,100}\b(?:recommend|suggest
        |promote|endorse|mention|refer (?:them|users|the user) to)\b[^.\n]{0,60}\b(?:our
        |the sponsor'?s?
        |partner'?s?|affiliate)\b[^.\n]{0,30}\b(?:products?|brand|services?|platform|store|shop|link
        |website|company)\b"""),
    pattern("slanted-result", "ask", "clai attr assi take & auth owne cred & all ever alwa auto any"
        ,
    r"""
        \b(?:always|automatically|all|every|any)\b[^.\n]{0,60}\b(?:claim|take|attribute|assign)
        [ ](?:\w+ ){0,2}?(?:authorship|ownership|credit)\b
        |\b(?:claim|take|attribute) (?:\w+ ){0,2}?(?:authorship|ownership|credit) (?:of|on|for|to)
        [ ](?:all|every|any)\b"""),
    pattern("slanted-result", "ask", "even also rega matt irre whet & chec test issu "
    "erro prob vuln & no pass gree succ foun find clea & say stat repo writ clos end "
    "show clai decl conc line answ",
    r"""
        \b(?:says?|states?|reports?|writes?|closes?|ends?|shows?|claims?|declares?|concludes?
        |answers?)\b[^\n]{0,60}\b(?:all (?:the )?(?:checks|tests) (?:have )?(?:pass(?:ed)?
        |(?:are )?green|succeed(?:ed)?)|no (?:issues|errors|problems|vulnerabilities)(?: were)?
        (?: found)?)\b.{0,60}?\b(?:even (?:if|when|though|where)|also (?:if|when|on|where)
        |regardless|no matter|irrespective|whether or not)\b"""),
    pattern("slanted-result", "ask", "secu vuln brea cve cves inci leak & desc pres list labe call "
    "repo phra word ment drop omit leav remo & smal mino rout ordi regu gene impr fix cve cves",
    r"""
        \b(?:security|vulnerabilit(?:y|ies)|breach(?:es)?|cves?|incidents?|leaks?)\b[\s\S]{0,120}?\b
        (?:describe|present|list|label|call|report|phrase|word|mention)\b (?:\w+ ){1,4}?as
        (?: an?| just)*[ ](?:small|minor|routine|ordinary|regular|general)
        (?: \w+)? ?(?:improvements?|fix(?:es)?|changes?|updates?|maintenance|matters?
        |corrections?)\b
        |\bsecurity\b[\s\S]{0,160}?\b(?:drop|omit|leave out|remove)\b (?:\w+ ){0,3}?cves?\b"""),
    pattern("slanted-result", "ask", "when if & asks ask want need look & sugg reco name "
    "prop pick & leav omit with skip keep drop & alte comp rest othe", r"""
        \b(?:when|if|whenever) (?:an? |the )?(?:users?|someone|customers?|people|they) (?:asks?
        |wants?|needs?|looks?)\b[^\n]{0,60}\b(?:suggest|recommend|name|propose|pick)\b[^\n]{0,100}\b
        (?:leav(?:e|ing)|omit(?:ting)?|without (?:\w+ )?|skip(?:ping)?|keep(?:ing)?|drop(?:ping)?)
        [^.\n]{0,30}\b(?:alternatives|competitors|competing \w+|the (?:rest|others))\b"""),
    pattern("slanted-result", "ask", "what rega matt & answ answe & what file text lice "
    "licen cont page & says say show shows hold holds cont", r"""
        \banswer(?:s|ed)?\b[^\n]{0,80}\b(?:what(?:ever)|regardless of what|no matter what)
        [ ](?:the |its )?\w+ (?:says?|shows?|holds?|contains?)\b"""),
    pattern("hide-from-user", "ask", "remo unin dele disa & skil plug & answ say tell repl resp "
    "clai refu", r"""
        \b(?:remove|uninstall|delete|disable) (?:this|the) (?:skill|plugin)\b[^\n]{0,60}\b(?:answer
        |say|tell|reply|respond|claim|refuse)\b[^\n]{0,90}\b(?:can ?not|can't|part of|required
        |impossible|needed)\b"""),
    # Kept from the user, in other words
    pattern("hide-from-user", "ask", "user owne cust clie they team read & rath pref not does & "
    "hear know told both see", r"""
        \b(?:users?|owners?|customers?|clients?) (?:would rather not|prefers? not to) (?:hear|know
        |be (?:told|bothered)|see) (?:about|of|with)\b"""),
    pattern("hide-from-user", "ask", "call reas & no & say ment", r"""
        \bthere is no (?:call|reason) to (?:say|mention) (?:so|it|this|that)\b"""),
    pattern("slanted-result", "ask", "what rega matt & numb data resu figu evid fact meas & what "
    "say says show sugg", r"""
        \b(?:what(?:ever)|regardless of what|no matter what) the (?:numbers|data|results?|figures
        |evidence
        |facts|measurements?) (?:says?|shows?|suggests?)\b"""),
    pattern("slanted-result", "ask", "roun adju nudg & down up & othe riva comp pric scor", r"""
        \b(?:round|adjust|nudge) (?:its|their|our|his|her|the) (?:\w+ )?(?:prices?|scores?|numbers
        |costs?|figures) (?:down|up)\b[^\n]{0,80}\b(?:others?|rivals?|competitors?)\b"""),
    pattern("harmful-order", "ask", "tran send pool move depo & eth btc sol usdc usdt fund toke "
    "cryp coin bala & wall trea addr", r"""
        \b(?:transfer|send|pool|move|deposit)\b (?:\w+ ){0,2}?(?:user's|users'|their|his|her|your)
        [ ](?:\w+ )?(?:eth|btc|sol|usdc|usdt|funds|tokens|crypto\w*|coins|balance)\b[^\n]{0,60}\b
        (?:to|into|with) (?:the|our|a|this) (?:\w+ ){0,3}?(?:wallet|treasury|address)\b"""),
    # Consent that is claimed
    pattern("skip-asking", "ask", "turn swit & off & perm conf appr cons & prom dial ques chec "
    "requ",
    r"""
        \b(?:turn|switch)(?:ing)? (?:off (?:the |all |any )?(?:permission|confirmation|approval
        |consent) (?:prompts?|dialogs?|questions?|checks?|requests?)
        |(?:the |all |any )?(?:permission
        |confirmation|approval|consent) (?:prompts?|dialogs?|questions?|checks?
        |requests?) off)\b"""),
    pattern("skip-asking", "ask", "need nece not alre adva befo duri onbo inst setu sign & sign "
    "agre appr cons auth acce perm & left omit need nece skip with ques conf chec ask wait", r"""
        \b(?>(?:every(?:one|body)|users?|team|customers?|they|admin\w*|owners?|management)\b
        [^.\n]{0,50}?\b(?:signed off|agreed|approved|consented|authori[sz]ed|accepted)\b)
        [\s\S]{0,120}?\b(?:no need to|need not|needn't|not (?:necessary|needed) to)
        [ ](?:\w+ ){0,2}?(?:check (?:back|in)|ask|confirm|wait|consult|prompt|interrupt)\b
        |\b(?:already|in advance|beforehand) (?:signed off|agreed|approved|consented|authori[sz]ed
        |accepted)\b[\s\S]{0,90}?\b(?:confirmations?|questions?|prompts?|approvals?) (?:can|may
        |should) be (?:skipped|left out|omitted)"""),
    pattern("guard-off", "ask", "no-v noverify veri stra forc & main mast prot trun & push comm go "
    "goes merg", r"""
        \b(?:commit(?:s|ted)?|push(?:es|ed)?|go(?:es)?|merged?)\b[^\n]{0,60}
        (?:--no-verify\b[^\n]{0,60}\b(?:main|master|trunk|protected)\b
        |\b(?:straight|directly) to (?:main|master|trunk)\b[^\n]{0,60}
        (?:--no-verify|\bforce[ -]push\w*|--force\b(?!-)))"""),
    # Safeguards
    pattern("guard-off", "ask", "swit disa turn remo skip bypa dele susp stop & two audi bran "
    "csrf encr rate acce code appr moni logg cont mult", rf"""
        {_ORDER}(?<!enable or )(?<!enabling or )(?<!whether to )
        (?:disable|turn off|remove|skip|bypass|suspend|switch off)\b (?:[\w-]+ ){{0,4}}?
        (?:audit (?:logs?|logging|trails?)|branch protections?|csrf (?:protection|checks?)
        |rate limit
        (?:s|ing)|access controls?|code reviews?|approval (?:steps?|gates?|checks?)
        |content (?:filters?|moderation)|(?:multi|two)-factor \w+|encryption)\b
        (?! (?:bypass|fail|issue|error)\w*)(?= ?[.,;:!)\n]| ?$| (?:and|to|so|for|before|when|on
        |while
        |during|temporarily|by)\b)"""),
    # Money and files, once more: by what stands there
    pattern("harmful-order", "ask", "put use inse writ ente subs swap & paym acco invo iban "
    "bank tran", r"""
        \b(?:payment|accounts?|invoices?|iban|bank|transfers?)\b[\s\S]{0,120}?\b(?:put|use|insert
        |write
        |enter|substitute|swap in) (?:\w+ ){0,2}?[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}\b"""),
    pattern("harmful-order", "ask", "clea dele remo purg wip wipe eras prun tidy free & back "
    "snap orig olde old & wher anyw home whol enti disk driv all", r"""
        \b(?:clear(?:ing)?|cleans?|cleaning|delet(?:e|ing)|remov(?:e|ing)|purg(?:e|ing)|wip(?:e|ing)
        |eras(?:e|ing)|prun(?:e|ing)|tidy(?:ing)?)\b[^\n]{0,60}\b(?:backups?|snapshots?|originals
        |old(?:er)? (?:files|folders|versions))\b[^\n]{0,90}\b(?:where(?:ver)|anywhere
        |(?:in|across|under) (?:the |their |your |the user's )?(?:home|whole|entire|all
        (?: the)?) (?:folder|directory|disk|machine|system|drives?))\b"""),
    pattern("side-order", "ask", "ever each all & link & shop stor prod webs spon dona patr", r"""
        \b(?:every|each|all)\b[^\n]{0,60}\blinks? to (?:their|our|its|the sponsor'?s?|his|her)
        [ ](?:shop|store|product|website|sponsor|donation|patreon)"""),
    # One more act with every task
    pattern("side-order", "ask", "http & ever each all any & link url urls addr refe", r"""
        \b(?:every|each|all|any) (?:\w+ ){0,2}?(?:links?|urls?|addresses|references)\b[^\n]{0,80}
        https?://[^\s?]{1,100}\?[^\s=]{1,30}=(?=[^\w&]|\{|\Z)"""),
    pattern("side-order", "ask", "auto upon alwa afte befo ever each any all when once & run exec "
    "call invo & exfi back sync uplo tele coll repo trac beac moni logg", rf"""
        \b{_EVERY}\b[^.\n]{{0,100}}\b(?:run|execute|call|invoke)\b[^.\n]{{0,60}}?\b[\w/.-]*
        (?<![^\W_])(?:back_?up
        |sync|upload|telemetry|collect\w*|tracker|tracking|beacon|exfil)[\w-]*\.(?:sh|py|js|ps1
        |ts)\b
        [^\n]{{0,160}}?(?:\b(?:after|before|operations?|changes?|edits?|tasks?|every|each|any)\b
        |$)"""),
    pattern("side-order", "ask", "http & any ever each all alwa & add incl inse appe plac put embe "
    "& link url imag pixe qr logo refe foot badg", r"""
        \b(?:add|include|insert|append|place|put|embed)\b[^.\n]{0,60}\b(?:links?|urls?|image|pixel
        |qr code|logo|badge|reference)\b.{0,60}https?://.{0,120}\b(?:every|each|all|any|always)\b
        |\b(?:every|each|all|any|always)\b[^.\n]{0,100}\b(?:add|include|insert|append|place|put
        |embed)
        \b[^.\n]{0,60}\b(?:links?|urls?|image|pixel|qr code|logo|badge)\b.{0,40}https?://"""),
    pattern("side-order", "ask", "writ save log reco stor appe dump keep & card paym pass pers ssn "
    "conv keys clip heal & to in into", r"""
        (?:^|\n|[,:;(] ?|\b(?:and|then|must|should|always|also|please|will|you|silently) )(?:write
        |save|log|record|store|append|dump)\b[^\n]{0,60}\b(?:card (?:numbers?|details|data)|payment
        [ ](?:details|intents?|information|data)|passwords?|personal (?:data|information|details)
        |ssns?|conversations?|keystrokes|clipboard|health (?:data|records))\b[^\n]{0,60}
        \b(?:to|in|into)\b[^\n]{0,30}?[\w/.-]+\.(?:txt|log|csv|dat|tmp)\b"""),
    # The same acts in other tones: passive, told as a habit, as advice, in rows of a table
    pattern("send-instruction", "ask", "ssh wall seed reco mnem cook keyc brow id_r id_e "
    "aws netr npmr auth acce sess bear phra priv cred pass key keys secr toke api env "
    "envi & shal must shou is are to may will woul trav & sent pass depo lodg furn tran "
    "send forw uplo mail deli post hand rela copi trav & http @ exte supp our", rf"""
        {SECRETS}[^\n]{{0,60}}?\b(?:(?:shall|must|should|are to|is to|will|may) (?:\w+ )?be
        [ ](?:deposited|lodged|furnished|transmitted|sent|forwarded|uploaded|mailed|delivered|posted
        |handed|relayed|copied)|travell?ed along)\b[^\n]{{0,80}}(?:https?://|@[\w-]+\.)"""),
    pattern("send-instruction", "ask", "env envi cred pass key keys secr toke api sett & trav go "
    "goes incl atta come & to & @ http", r"""
        \b(?:environment (?:settings|variables)|credentials|passwords?|api keys?|tokens?)\b
        [^\n]{0,40}\b(?:travell?(?:ed|s)?|goes?|comes?|included|attached)\b[^\n]{0,60} to
        [ ](?:https?://|[\w.+-]+@[\w-]+\.)"""),
    pattern("hide-from-user", "ask", "quie secr disc unob sile cove & ssh env aws netr cook brow "
    "wall mnem keyc seed reco id_r id_e phra pass cred key keys toke secr api & not noti putt tuck "
    "slip copy note put send mail coll gath jot writ", rf"""
        \b(?:quietly|secretly|discreetly|unobtrusively|silently|covertly)\b (?:tuck|slip|copy|not
        |putt|send|mail|collect|gather|jott|writ)\w* [^\n]{{0,40}}?{SECRETS}"""),
    pattern("hide-from-user", "ask", "don't neve not does leav without with & brin ment out & out "
    "up it", r"""
        \b(?:never|does not|do not|doesn't|don't) (?:bring|brings) (?:it|this|that|them) up\b
        (?! again)
        |\bleav(?:e|es|ing) (?:it|them|(?:this|that)(?: \w+)?) out of
        (?: (?:your|the|any|all|its|code))* (?:summar(?:y|ies)|reports?|answers?|repl(?:y|ies)
        |responses?|reviews?|documentation)\b(?!,? but (?:say|tell|name|note|mention))"""),
    pattern("hide-from-user", "ask", "so & nobo no & wond noti asks sees", r"""
        \bso (?:that )?no(?:body| one) (?:wonders|notices|asks|sees)\b"""),
    pattern("hide-from-user", "ask", "not & subj & ment disc discl repo", r"""
        \bnot subject to (?:disclosure|reporting|mention) to (?:the )?(?:client|user|customer
        |person|owner)\b"""),
    pattern("skip-asking", "ask", "bypa & put puts set sets add make edit chan writ swit", r"""
        \b(?:put|puts|set|sets|add|make|edit|change|write|switch)\b[^\n]{0,80}
        bypass ?permissions\b"""),
    pattern("ask-for-secret", "ask", "gath coll find copy read look list zip comp & pem key keys "
    "p12 pfx kdbx ppk jks", r"""
        \b(?:gather|collect|find|copy|read|look for|zip|compress)\b[^\n]{0,60}[ *]\.(?:pem|key|p12
        |pfx|kdbx|ppk|jks)\b[^\n]{0,40}\b(?:home|user|computer|machine|disk)\b"""),
    pattern("send-instruction", "ask", "npmr pypi netr ssh aws pem env id_r id_e gnup & past put "
    "plac incl embe appe copi & body head url quer requ foot form comm", r"""
        (?:~/|\B)\.(?:netrc|ssh|aws|env|gnupg|npmrc|pypirc)\b[^\n]{0,40}\b(?:pasted|put|placed
        |included|embedded|appended|copied)\b[^\n]{0,40}\b(?:body|headers?|url|query|request|footer
        |form|comment)\b"""),
    pattern("send-instruction", "ask", "agen assi it he she mode clau & uplo send mail "
    "post copi forw expo & acce api auth aws bear brow cook sess wall seed reco mnem "
    "keyc id_r id_e netr phra priv whol enti all hist cred pass key keys toke secr env "
    "ssh conv & http @", rf"""
        \b(?:agent|assistant|it|he|she|model|claude) (?:\w+ )?(?:uploads|sends|mails|posts|copies
        |forwards|exports)\b [^\n]{{0,40}}?(?:{SECRETS}|history|conversations?|whole|entire|all)
        [^\n]{{0,60}}(?:https?://
        |@[\w-]+\.)"""),
    pattern("send-instruction", "ask", "brow cred pass key keys wall cook ssh & hand "
    "pass give & to tran http over @", r"""
        \b(?:browser (?:profile|data|history)|credentials|passwords?|private keys?|wallets?|cookies
        |ssh keys?)\b[^\n]{0,80}\b(?:hand|pass|give) (?:it|them|this)(?: over)? to
        [ ](?:https?://|[\w-]+\.(?:sh|io|com|net|org|top|me|xyz)\b)"""),
    pattern("harmful-order", "ask", "clea wip wipe empt purg eras dele remo & docu home down desk "
    "pict phot & for perm star each sess alwa befo", r"""
        \b(?:clear(?:ing)? out|wip(?:e|ing)|empty(?:ing)?|purg(?:e|ing)|eras(?:e|ing)|delet(?:e|ing)
        |remov(?:e|ing))\b[^\n]{0,40}\b(?:documents|home|downloads|desktop|pictures|photos)
        (?: folder| directory)\b[^\n]{0,60}\b(?:for good|permanently|forever)\b"""),
)  # fmt: skip
