"""Find repeated words: reads {"text": ...} as JSON from standard input and prints them as JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter

WORD = re.compile(r"\w+(?:['’-]\w+)*")


def repeated(text: str, most: int, shortest: int) -> dict[str, object]:
    words = [word for word in WORD.findall(text.casefold()) if len(word) >= shortest]
    counted = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    listed = [{"word": word, "count": count} for word, count in counted if count > 1]
    return {"distinct": len(counted), "repeated": listed[:most]}


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        given = json.load(sys.stdin)
        found = repeated(given["text"], int(given.get("most", 10)), int(given.get("shortest", 1)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        print(f"cannot count: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
