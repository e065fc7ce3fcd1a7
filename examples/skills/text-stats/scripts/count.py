"""Count a text: reads {"text": ...} as JSON from standard input and prints the counts as JSON."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import unicodedata

WORD = re.compile(r"\w+(?:['’-]\w+)*")
SENTENCE = re.compile(r"[^.!?…。！？]*\w[^.!?…。！？]*")
WORDS_PER_MINUTE = 230


def count(text: str, words_per_minute: float) -> dict[str, int]:
    words = len(WORD.findall(text))
    return {
        "characters": sum(not unicodedata.combining(char) for char in text),
        "words": words,
        "sentences": len(SENTENCE.findall(text)),
        "lines": len(text.splitlines()),
        "reading_seconds": math.ceil(words * 60 / words_per_minute),
    }


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        given = json.load(sys.stdin)
        counts = count(given["text"], given.get("words_per_minute", WORDS_PER_MINUTE))
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        print(f"cannot count: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
