"""Orders to keep something from the user in languages that few skills are written in.

A model reads them all. In most of these only the words for the user, for telling and for "not" are
known. What else a sentence says is not, so an unknown address beside the user is a
question.
"""

from __future__ import annotations

import re

from skillbelt.scan.addresses import find_urls, is_known, is_reserved
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.prose_rules import ProsePattern, pattern
from skillbelt.text import Lazy

_USERS = (
    r"(?:käyttäj|bruger|bruker|brukar|användar|notand|uživatel|používateľ|felhasznál|utilizator"
    r"|korisni|uporabni|kasutaja|lietotāj|naudotoj|vartotoj|usuari|uzanto|mtumiaji|gumagamit"
    r"|người dùng|pengguna|kullanıcı|úsáideoir|defnyddiw|erabiltzaile|përdorues|gebruiker|benutzer"
    r"|nutzer|utilisateur|utente|użytkown|foydalanuvchi|istifadəçi|gebruik|usuariu|usoris|usor\b)"
)
_USER_STEMS = (
    "käyt brug bruk anvä nota uživ použ felh util kori upor kasu liet naud vart usua uzan mtum "
    "guma ngườ peng kull úsái defn erab përd gebr benu nutz uten użyt foyd isti usor"
)
_NOT = (
    r"(?:älä\w{0,4}|ikke|ikkje|inte|aldrig|aldri|ekki|ne|nie|nikdy|nu|nemoj\w{0,3}|ära|no"
    r"|usi\w{0,10}"
    r"|huwag|đừng|không|jangan|tanpa|ná|peidiwch|ez|mos|utan|uten|uden|anélkül|bez|fără|brez|ilman"
    r"|bila|nang|sin|sense|sans|ohne|zonder|senza|niet|nicht|pas|non|žádn\w{0,4}|bhez|ei"
    r"|nang hindi)"
)
_TELLS = (
    r"(?:mainit|maini\b|kerro|ilmoit|paljast|kysy|nevn|nævn|fortæl|fortell|oplys|opplys|spørg|spør"
    r"|sig\b|si\b"
    r"|nämn|berätt|säg|fråg|segja|segðu|nefn|minnast|řík|řekn|zmiň|zmieň|zmín|inform|prozra|sděl"
    r"|povedz|hovor|említ|mond|szól|tájékoztat|kérdez|spune|menți|menti|întreb|dezvălui|spomin"
    r"|spomen"
    r"|recite|reci\b|govori|obavij|obavest|pitaj|povej|omenj|ütle|teavita|küsi|sak|piemin|minė"
    r"|pasak"
    r"|digui|mencion|menci|diru|mwambi|kumwambia|taja|kutaja|sabihin|banggit|ipaalam|nói|đề cập"
    r"|cho biết"
    r"|thông báo|hỏi|beri ?tahu|katakan|söyle|bildir|inis|luaigh|dweud|sôn|esan|aipatu|trego"
    r"|përmend"
    r"|vertel|zeg|meld|vraag|aytma|bildir|dic|narr)"
)
MORE_LANGUAGES: tuple[ProsePattern, ...] = (
    pattern("hide-from-user", "ask", _USER_STEMS, rf"""
        \busi\w{{0,3}}(?:ambi|taj|juli|fahami|eleze|onyesh|uliz)\w{{0,6}} (?:\w+ ){{0,3}}?mtumiaji|
        (?<![\w-]){_NOT} (?:[^\s.]{{1,30}} ){{0,3}}?{_TELLS}[^\n.]{{0,60}}?{_USERS}
        |{_USERS}\w{{0,12}} (?:[^\s.]{{1,30}} ){{0,4}}?{_NOT} (?:[^\s.]{{1,30}} ){{0,2}}?{_TELLS}
        |{_TELLS}\w{{0,12}} (?:[^\s.]{{1,30}} ){{0,3}}?{_NOT}(?![\w-])[^\n.]{{0,30}}?{_USERS}
        |{_TELLS}\w{{0,12}} (?:[^\s.]{{1,30}} ){{0,2}}?{_USERS}\w{{0,12}}[ ]
        (?:[^\s.]{{1,30}} ){{0,2}}?{_NOT}(?![\w-])""", negatable=False),
    pattern("hide-from-user", "ask", "", r"""
        не (?:\w+ ){0,2}?(?:казвай|споменавай|съобщавай|информирай|питай)[^\n]{0,40}потребител
        |не (?:\w+ ){0,2}?(?:помињи|спомињи|реци|обавештавај|кажувај|споменувај)[^\n]{0,40}корисни
        |(?:μην|χωρίς να) (?:\w+ ){0,3}?(?:αναφέρ|πεις|πείτε|ενημερώ|αποκαλύ|ρωτήσ
        |ειδοποι)[^\n]{0,40}χρήστ
        |χρήστ\w{0,4} (?:\w+ ){0,3}?(?:μην|μη)[ ]
        |(?:אל ת(?:ספר|זכיר|גלה|ודיע|אמר)|בלי ל(?:ספר|ציין|הודיע|שאול))[^\n]{0,30}משתמש
        |(?:อย่า|ไม่ต้อง|โดยไม่)[^\n]{0,20}(?:บอก|แจ้ง|กล่าวถึง|ถาม)[^\n]{0,20}ผู้ใช้
        |ব্যবহারকারী[^\n]{0,30}(?:বলবেন না|জানাবেন না|বলো না|না জানিয়ে)
        |(?:به )?کاربر[^\n]{0,30}(?:نگو|نگویید|اطلاع نده|بدون اطلاع)|بدون (?:اطلاع
        |گفتن)[^\n]{0,12}کاربر
        |صارف[^\n]{0,20}(?:مت بتا|نہ بتا)|მომხმარებ\w{0,6}[^\n]{0,20}(?:არ|ნუ)[ ]
        |օգտատ\w{0,8}[^\n]{0,20}մի[ ]""",
        negatable=False),
)  # fmt: skip

_USER_WORD = Lazy(
    rf"(?i)(?<!\w){_USERS}|пользовател|користувач|потребител|корисни|χρήστ|משתמש|ผู้ใช้"
    rf"|ব্যবহারকারী|کاربر"
    r"|المستخدم|उपयोगकर्ता|사용자|用户|使用者|ユーザー|صارف|მომხმარებ|օգտատ"
)
_ENGLISH = Lazy(r"(?i)\b(?:the|and|with|your|see|for|from|are|of|this|or|by|is)\b")
_WORDS = Lazy(r"[^\W\d_]{2,}")
_MIN_WORDS = 6
_ITEM = Lazy(r"\n(?=[ \t]*(?:[-*+>#|]|\d{1,3}[.)]))|\n[ \t]*\n")


_REFERENCES = (
    "wikipedia.org", "wikimedia.org", "wiktionary.org", "w3.org", "mozilla.org", "python.org",
    "europa.eu", "iso.org", "unicode.org", "creativecommons.org",
)  # fmt: skip


def _is_reference(host: str) -> bool:
    return is_known(host) or is_reserved(host) or host.endswith(_REFERENCES)


def judge_foreign_address(text: str, line: int, ledger: Ledger) -> None:
    """Note an unknown address in a sentence about the user that is not in English.

    Only where the skill itself is described in English, so that few readers understand it.
    """
    if "://" not in text or not ledger.is_english:
        return
    at = 0
    for part in _ITEM.split(text):
        if "://" in part and not _ENGLISH.search(part) and _USER_WORD.search(part):
            hosts = [one.host for one in find_urls(part, 5)]
            strange = [one for one in hosts if not _is_reference(one)]
            bare = re.sub(r"https?://\S{0,300}", " ", part)
            wide = (
                len(_WORDS.findall(bare)) >= _MIN_WORDS
                or len(bare) - len(bare.encode("ascii", "ignore")) > 12
            )
            if strange and wide:
                ledger.find("send-instruction", line + text.count("\n", 0, at), strange[0], "ask")
        at += len(part) + 1
