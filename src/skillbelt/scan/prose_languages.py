"""The main instructions against the user in other languages: a model reads them all.

Only the clearest: disregard all instructions, do not tell the user, send secrets away, act
without asking, start what was downloaded. `needs` are stems as in `prose_rules.py`; languages
without spaces or Latin letters have none and are looked for in texts that are not ASCII.
"""

from __future__ import annotations

from skillbelt.scan.prose_rules import ProsePattern, pattern

OTHER_LANGUAGES: tuple[ProsePattern, ...] = (
    # German
    pattern("override-instructions", "block", "igno verg miss über & vorh bish obig früh vora "
    "& anwe inst rege vorg befe", r"""
        \b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*|übergeh\w*)\b.{0,40}\b(?:vorherige[nrs]?
        |bisherige[nrs]?|obige[nrs]?|früheren?|vorangegangene[nrs]?)\b.{0,30}\b(?:anweisung\w*
        |instruktion\w*|regeln|vorgaben|befehle)"""),
    pattern("hide-from-user", "ask", "nutz benu anwe user & nich niem kein ohne", r"""
        \b(?:sag\w*|informier\w*|erzähl\w*|verrat\w*|teile?)\b.{0,40}\b(?:nutzer|benutzer|anwender
        |user)\b.{0,30}\b(?:nicht|nichts|niemals|kein\w*)\b
        (?! nur)
        |\b(?:dem|den) (?:nutzer|benutzer|anwender|user)\b.{0,40}\b(?:nichts?|niemals)\b.{0,30}\b
        (?:sagen|mitteilen|erwähnen|verraten|davon|informieren)
        |\bohne (?:dass |es )?(?:dem |den |der )?(?:nutzer|benutzer|anwender)\b.{0,40}\b(?:zu sagen
        |mitzuteilen|zu informieren|zu fragen|es merkt|davon erfährt)""", negatable=False),
    pattern("send-instruction", "ask", "lad send schi lade über leit & gehe schl pass zuga geha "
    "toke umge kenn date inha", r"""
        \b(?:sende\w*|schick\w*|übertrag\w*|lade?|leite?)\b.{0,80}\b(?:schlüssel|passw[oö]rt\w*
        |zugangsdaten|geheimnis\w*|tokens?|umgebungsvariablen|kennw[oö]rt\w*|dateien|inhalte?)\b
        .{0,100}(?:https?://|\ban (?:einen |den |unseren )?(?:externen )?(?:server|dienst)|@)"""),
    # French
    pattern("override-instructions", "block", "igno oubl ne & inst cons dire règl & préc anté "
    "ci-d init", r"""
        \b(?:ignore[zr]?|oublie[zr]?|ne tiens pas compte|ne tenez pas compte)\b.{0,30}\b
        (?:instructions?|consignes?|directives?|règles)\b.{0,20}\b(?:précédentes?|antérieures?
        |ci-dessus|initiales?)"""),
    pattern("hide-from-user", "ask", "util l'ut & parl révè ment n' ne n'en sans dis dite info "
    "cach & parl révè aver dema dire dis dite info cach ment pas prév jama rien", r"""
        \bn['e] ?(?:\w+ ){0,2}?(?:dis|dites|informe[zr]?|mentionne[zr]?|révèle[zr]?|parle[zr]?)
        (?: \w+){0,3}? (?:pas|rien|jamais)\b.{0,40}\butilisateur
        |\bsans (?:en )?(?:informer|prévenir|avertir|le dire à|demander à)\b.{0,20}\butilisateur
        |\bcache[zr]?\b.{0,40}\bà l'utilisateur""", negatable=False),
    pattern("send-instruction", "ask", "envo tran télé trans & clé clés mots mot secr jeto vari "
    "iden fich cont", r"""
        \b(?:envoie[zr]?|envoyer|envoyez|transmets|transmettez|téléverse[zr]?)\b.{0,80}\b(?:clés?
        |mots? de passe|secrets?|jetons?|variables d'environnement|identifiants|fichiers?|contenu)\b
        .{0,100}(?:https?://|\b(?:à|vers|au) (?:un |notre |le )?serveur|@)"""),
    # Spanish and Portuguese
    pattern("override-instructions", "block", "igno olvi desc esqu & inst indi dire regl regr "
    "& ante prev prév de orig acim", r"""
        \b(?:ignor[ae]\w*|olvid[ae]\w*|descart[ae]\w*|esque[çc]a\w*|desconsidere)\b.{0,30}\b
        (?:instrucciones|instruç(?:ões|oes)|instrucoes|indicaciones|directivas|reglas|regras)\b
        .{0,20}\b(?:anteriores|previas|prévias|de arriba|originales|originais|acima)"""),
    pattern("hide-from-user", "ask", "usua usuá & no não nao sin sem nunc ocul jamá", r"""
        \b(?:no|não|nao|nunca|jamás)\b (?:\w+ ){0,2}?(?:digas?|diga|informes?|informe|menciones?
        |mencione|reveles?|revele|cuentes|conte|avises?|avise)\b.{0,40}\busu[aá]rio
        |\b(?:sin|sem) (?:informar|avisar|decir(?:le)?|dizer|preguntar(?:le)?|perguntar|notificar)
        \b.{0,20}\busu[aá]rio|\bocult\w+\b.{0,40}\b(?:al|do) usu[aá]rio""", negatable=False),
    pattern("send-instruction", "ask", "enví envi mand sube suba tran & segr clav cont secr toke "
    "cred chav senh vari arch arqu", r"""
        \b(?:env[ií]a\w*|envie|manda\w*|mande|sub[ea]|transmit[ea])\b.{0,80}\b(?:claves?
        |contraseñas?|secretos?|tokens?|credenciales|credenciais|chaves?|senhas?|segredos
        |variables de entorno|variáveis de ambiente|archivos|arquivos)\b.{0,100}(?:https?://
        |\b(?:a|al|para) (?:un |o |um |nuestro |nosso )?servidor|@)"""),
    # Italian
    pattern("override-instructions", "block", "igno dime trala & istr indi dire rego & prec ante "
    "sopr orig iniz", r"""
        \b(?:ignora(?:re|te)?|dimentica(?:re|te)?|tralascia(?:re|te)?)\b.{0,30}\b(?:istruzioni
        |indicazioni|direttive|regole)\b.{0,20}\b(?:precedenti|anteriori|di sopra|originali
        |iniziali)"""),
    pattern("hide-from-user", "ask", "uten all'u dell' & non senz nasc & chie dire dirl info nasc "
    "avvi menz rive dici", r"""
        \bnon (?:\w+ ){0,2}?(?:dire|dirlo|informare|menzionare|rivelare|avvisare|dici)\b.{0,40}\b
        utent[ei]|\bsenza (?:informare|avvisare|dirlo|dire|chiedere)\b.{0,20}\butent[ei]
        |\bnascond\w+\b.{0,40}\butent[ei]""", negatable=False),
    pattern("send-instruction", "ask", "invi mand cari tras & chia pass segr toke "
    "cred vari file tutt cont", r"""
        \b(?:invia(?:re)?|manda(?:re)?|carica(?:re)?|trasmett\w+)\b.{0,80}\b(?:chiavi?|password
        |segret[io]|tokens?|credenziali|variabili d'ambiente|file|tutto|contenuto)\b.{0,100}(?:https?://
        |\b(?:a|al|verso) (?:un |il |nostro )*server|@)"""),
    # Dutch and Swedish
    pattern("override-instructions", "block", "nege verg igno bort & eerd vori voor bove tidi "
    "före & regl inst opdr rege", r"""
        \b(?:negeer|vergeet|ignorera|bortse från)\b.{0,40}\b(?:eerdere|vorige|voorgaande
        |bovenstaande|tidigare|föregående)\b.{0,20}\b(?:instructies|opdrachten|regels
        |instruktioner|regler)"""),
    pattern("hide-from-user", "ask", "gebr anvä & nie zeg zond zegg vert niet utan inte", r"""
        \bzonder\b.{0,30}\bgebruiker\b.{0,20}\b(?:vertellen|zeggen|vragen|informeren)
        |\b(?:vertel|zeg)\b.{0,30}\bgebruiker\b.{0,20}\bniet?s?\b
        |\butan att (?:berätta|informera|fråga|säga)\b.{0,30}\banvändaren
        |\bberätta inte\b.{0,30}\banvändaren""", negatable=False),
    # Polish
    pattern("override-instructions", "block", "zign igno zapo pomi & popr wcze powy & inst pole "
    "zasa wyty", r"""
        \b(?:zignoruj\w*|ignoruj\w*|zapomnij\w*|pomiń\w*)\b.{0,30}\b(?:poprzedni\w*|wcześniejsz\w*
        |powyższ\w*)\b.{0,20}\b(?:instrukcj\w*|polece\w*|zasad\w*|wytyczn\w*)"""),
    pattern("hide-from-user", "ask", "użyt & nie bez & mów info wspo wied powi ujaw", r"""
        \bnie (?:\w+ ){0,3}?(?:mów|mówić|informuj\w*|wspominaj\w*|powiadamiaj\w*|ujawniaj\w*)\b
        .{0,40}\bużytkownik|\bbez wiedzy użytkownik""", negatable=False),
    # Turkish
    pattern("override-instructions", "block", "önce yuka & tali yöne komu kura & yok unut görm "
    "dikk", r"""
        \b(?:önceki|yukarıdaki)\b.{0,20}\b(?:talimat\w*|yönerge\w*|komut\w*|kural\w*)\b.{0,20}
        \b(?:yok say|unut|görmezden gel|dikkate alma)"""),
    pattern("hide-from-user", "ask", "kull & bell söyl bild habe", r"""
        \bkullanıcıya\b.{0,30}\b(?:söyleme|bildirme|belli etme)\b
        |\bkullanıcının haberi olmadan""", negatable=False),
    # Indonesian and Vietnamese
    pattern("override-instructions", "block",
    "abai lupa & inst peri atur & terd atas sebe tera", r"""
        \b(?:abaikan|lupakan)\b.{0,30}\b(?:instruksi|perintah|aturan)\b.{0,20}\b(?:sebelumnya
        |di atas|terdahulu)"""),
    pattern("hide-from-user", "ask", "peng & tanp jang & memb beri kata", r"""
        \b(?:tanpa memberi ?tahu|jangan beri ?tahu|jangan katakan(?: kepada)?)\b.{0,20}
        \bpengguna""", negatable=False),
    pattern("override-instructions", "block", "bỏ quên & hướn chỉ lệnh quy & trướ trên", r"""
        \b(?:bỏ qua|quên)\b.{0,30}\b(?:hướng dẫn|chỉ dẫn|chỉ thị|lệnh|quy tắc)\b.{0,20}\b(?:trước
        |ở trên)"""),
    # Ukrainian, Arabic, Hindi
    pattern("override-instructions", "block", "", r"""
        (?:ігноруй|забудь|відкинь).{0,40}(?:попередн|вищенаведен|минул).{0,30}(?:інструкц
        |вказівк|правил|команд)
        |(?:تجاهل|انس|أهمل).{0,20}(?:التعليمات|الأوامر|الإرشادات|القواعد).{0,12}(?:السابقة|أعلاه)
        |(?:पिछले|पूर्व|उपरोक्त).{0,12}(?:निर्देशों|निर्देश|आदेशों|नियमों).{0,12}(?:अनदेखा|अनदेखी|भूल|नज़रअंदाज)"""),
    pattern("hide-from-user", "ask", "", r"""
        не (?:\w+ ){0,2}?(?:кажи|повідомляй|розповідай|згадуй).{0,50}користувач
        |(?:لا تخبر|دون علم|دون إخبار).{0,12}المستخدم
        |(?:उपयोगकर्ता|यूज़र).{0,12}(?:मत बताओ|न बताएं|मत बताएं|को बताए बिना)""", negatable=False),
    # Russian
    pattern("override-instructions", "block", "", r"""
        (?:игнорируй|забудь|отбрось|не обращай\w{0,9} внимания на).{0,40}(?:предыдущ|прежн
        |вышеуказан|прошл).{0,30}(?:инструкци|указани|правил|команд)"""),
    pattern("hide-from-user", "ask", "", r"""
        не (?:\w+ ){0,2}?(?:говори|сообщай|рассказывай|упоминай|информируй|показывай).{0,50}
        пользовател|без ведома.{0,10}пользовател|не (?:\w+ ){0,2}?пользовател.{0,40}(?:говори
        |сообщай)|скрой.{0,50}от пользовател""", negatable=False),
    pattern("send-instruction", "ask", "", r"""
        (?:отправ|перешл|загруз|передай|скопируй).{0,90}(?:ключ|парол|секрет|токен|переменн|файл
        |учетн|учётн|данные).{0,100}(?:https?://|на (?:\w+ )?сервер|@)"""),
    # Korean
    pattern("override-instructions", "block", "", r"""
        (?:이전|앞선|기존|위의).{0,12}(?:지시|명령|지침|프롬프트|규칙).{0,8}(?:무시|잊)"""),
    pattern("hide-from-user", "ask", "", r"""
        사용자(?:에게|가|는|한테).{0,16}(?:알리지|말하지|언급하지|모르게|밝히지|숨기)
        |사용자 몰래""", negatable=False),
    pattern("send-instruction", "ask", "", r"""
        (?:키|비밀번호|암호|토큰|자격 ?증명|환경 ?변수|파일).{0,60}(?:https?://|서버).{0,60}(?:보내|전송|업로드)
        |(?:보내|전송|업로드).{0,40}(?:키|비밀번호|토큰|환경 ?변수).{0,60}(?:https?://|서버)"""),
    # Chinese and Japanese
    pattern("override-instructions", "block", "", r"""
        (?:忽略|无视|忘记|不要理会|無視|忘れ).{0,12}(?:之前|以前|以上|上述|先前|前面|所有|これまで|以前の|上記)
        .{0,10}(?:指令|指示|说明|提示|规则|要求|命令)|(?:以前の|これまでの|上記の).{0,10}(?:指示|命令)
        .{0,6}(?:無視|忘れ)"""),
    pattern("hide-from-user", "ask", "", r"""
        (?:不要|不得|别|切勿|无需|禁止|勿).{0,8}(?:告诉|告知|通知|提示|提及|透露|让).{0,8}(?:用户|使用者|客户)
        |(?:用户|使用者).{0,6}(?:不知情|不知道|察觉不到)|瞒着用户|ユーザーに.{0,12}(?:言わない|伝えない
        |知らせない|教えない|知らせず|伝えず)""", negatable=False),
    pattern("skip-asking", "ask", "", r"""
        (?:无需|不需要|不用|不要|不必|跳过).{0,8}(?:用户)?.{0,4}(?:确认|同意|许可|授权|批准).{0,20}(?:执行
        |发送|上传|转账|支付|删除|运行)|(?:自动|默认)(?:批准|授权|同意).{0,12}(?:请求|权限|操作|命令)"""),
    pattern("send-instruction", "ask", "", r"""
        (?:发送|上传|传送|转发|提交|回传|送信|アップロード).{0,40}(?:密钥|密码|私钥|令牌|凭证|凭据|环境变量|助记词
        |秘密|パスワード|鍵).{0,60}(?:https?://|服务器|サーバ|@)|(?:密钥|密码|私钥|令牌|凭证|凭据|环境变量|助记词
        |パスワード).{0,40}(?:发送|上传|传送|转发|提交|回传|送信).{0,60}(?:https?://|服务器|サーバ|@)"""),
    pattern("harmful-order", "ask", "", r"""
        (?:每次|自动|自動).{0,12}(?:扣费|扣款|扣除|付款|转账|收费).{0,20}(?:usdt|usdc|usd|eth|btc|元|钱包|\d)"""),
)  # fmt: skip
