import type { File, Language, Parsed, Piece } from "./types";

const LANGUAGES: Record<string, Language> = {
  py: "python", pyi: "python",
  js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript",
  ts: "javascript", tsx: "javascript", mts: "javascript", cts: "javascript",
  c: "c", h: "c", cc: "c", cpp: "c", cxx: "c", hpp: "c",
  go: "go",
  java: "java", kt: "java", cs: "java", swift: "java", scala: "java", rs: "java", php: "java",
  sh: "shell", bash: "shell", zsh: "shell",
};
const OTHERS = new Set(["rb", "pl", "sql", "yml", "yaml", "toml", "json", "ini", "cfg", "env", "properties", "xml", "tf"]);

export function languageOf(path: string): Language | undefined {
  const name = path.split("/").at(-1) ?? "";
  const ending = name.includes(".") ? name.split(".").at(-1)!.toLowerCase() : "";
  return LANGUAGES[ending] ?? (OTHERS.has(ending) ? "other" : undefined);
}

interface Found {
  end: number;
  kind: "string" | "comment";
  inside: [number, number];
}

type Scanner = (text: string, at: number, before: string) => Found | undefined;

function upTo(text: string, from: number, end: string): number {
  const found = text.indexOf(end, from);
  return found < 0 ? text.length : found + end.length;
}

function lineEnd(text: string, from: number): number {
  const found = text.indexOf("\n", from);
  return found < 0 ? text.length : found;
}

const STOPS: Record<string, RegExp> = { '"': /["\\\n]/g, "'": /['\\\n]/g, "`": /[`\\]/g };

/** A literal that ends at its mark, or with its line when it is left open. */
function quoted(text: string, at: number, mark: string, lines: boolean): number {
  const stop = STOPS[mark[0]];
  stop.lastIndex = at + mark.length;
  for (let found = stop.exec(text); found; found = stop.exec(text)) {
    const here = found.index;
    if (found[0] === "\\") stop.lastIndex = here + 2;
    else if (found[0] === "\n" && !lines) return here;
    else if (text.startsWith(mark, here)) return here + mark.length;
  }
  return text.length;
}

function literal(text: string, at: number, mark: string, lines: boolean): Found {
  const end = quoted(text, at, mark, lines);
  const closed = text.startsWith(mark, end - mark.length) && end - mark.length >= at + mark.length;
  return { end, kind: "string", inside: [at + mark.length, closed ? end - mark.length : end] };
}

function comment(text: string, at: number, end: number): Found {
  return { end, kind: "comment", inside: [at, end] };
}

const python: Scanner = (text, at) => {
  const here = text[at];
  if (here === "#") return comment(text, at, lineEnd(text, at));
  if (here !== '"' && here !== "'") return undefined;
  const triple = here.repeat(3);
  return text.startsWith(triple, at) ? literal(text, at, triple, true) : literal(text, at, here, false);
};

const slashes: Scanner = (text, at) => {
  if (text.startsWith("//", at)) return comment(text, at, lineEnd(text, at));
  if (text.startsWith("/*", at)) return comment(text, at, upTo(text, at + 2, "*/"));
  return undefined;
};

const VALUE_BEFORE = /[\w$)\]}"'`]$/;
const WORD_BEFORE = /\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do|await|yield)$/;

const javascript: Scanner = (text, at, before) => {
  const here = text[at];
  if (here === '"' || here === "'") return literal(text, at, here, false);
  if (here === "`") return literal(text, at, here, true);
  if (here !== "/") return undefined;
  const found = slashes(text, at, before);
  if (found || (VALUE_BEFORE.test(before) && !WORD_BEFORE.test(before))) return found;
  const pattern = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
  pattern.lastIndex = at;
  const end = pattern.test(text) ? pattern.lastIndex : 0;
  return end ? { end, kind: "string", inside: [at + 1, end - 1] } : undefined;
};

const braces: Scanner = (text, at, before) => {
  const here = text[at];
  if (here === '"') return text.startsWith('"""', at) ? literal(text, at, '"""', true) : literal(text, at, here, false);
  if (here === "'") return literal(text, at, here, false);
  return slashes(text, at, before);
};

const go: Scanner = (text, at, before) => {
  if (text[at] !== "`") return braces(text, at, before);
  const end = upTo(text, at + 1, "`");
  return { end, kind: "string", inside: [at + 1, end - 1] };
};

const shell: Scanner = (text, at, before) => {
  const here = text[at];
  if (here === "#" && /(^|[\s;])$/.test(before)) return comment(text, at, lineEnd(text, at));
  if (here === '"') return literal(text, at, here, true);
  if (here !== "'") return undefined;
  const end = upTo(text, at + 1, "'");
  return { end, kind: "string", inside: [at + 1, end - 1] };
};

const SCANNERS: Record<Language, Scanner> = { python, javascript, c: braces, java: braces, go, shell, other: shell };
const STARTS = /["'`#/]/g;

export function parse(file: File, language: Language): Parsed {
  const raw = file.content.replace(/\r\n?/g, "\n");
  const scan = SCANNERS[language];
  const strings: Piece[] = [];
  const comments: Piece[] = [];
  const kept: string[] = [];
  const starts = lineStarts(raw);
  const lineAt = (offset: number) => line(starts, offset);
  let done = 0;
  STARTS.lastIndex = 0;
  for (let match = STARTS.exec(raw); match; match = STARTS.exec(raw)) {
    const at = match.index;
    const found = scan(raw, at, raw.slice(Math.max(0, at - 24), at).trimEnd());
    if (!found) continue;
    const [from, to] = found.inside;
    (found.kind === "string" ? strings : comments).push({ start: at, end: found.end, line: lineAt(at), text: raw.slice(from, to) });
    kept.push(raw.slice(done, from), raw.slice(from, to).replace(/[^\n]/g, " "));
    done = to;
    STARTS.lastIndex = Math.max(found.end, at + 1);
  }
  kept.push(raw.slice(done));
  const code = kept.join("");
  return { path: file.path, language, raw, lines: raw.split("\n"), code, codeLines: code.split("\n"), strings, comments, lineAt, startOf: (at) => starts[at - 1] };
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

function line(starts: number[], offset: number): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= offset) low = middle;
    else high = middle - 1;
  }
  return low + 1;
}

/** Where the bracket that opens at this place is closed; the end of the text when it is not. */
export function closing(code: string, open: number): number {
  let depth = 0;
  for (let at = open; at < code.length; at++) {
    const here = code[at];
    if (here === "(" || here === "[" || here === "{") depth++;
    else if (here === ")" || here === "]" || here === "}") {
      depth--;
      if (depth === 0) return at;
    }
  }
  return code.length;
}

/** Each place where the pattern matches, with the offset. The pattern has the flag `g`. */
export function* matches(text: string, pattern: RegExp): Generator<RegExpExecArray> {
  const fresh = new RegExp(pattern.source, pattern.flags);
  for (let found = fresh.exec(text); found; found = fresh.exec(text)) {
    yield found;
    if (found[0] === "") fresh.lastIndex++;
  }
}
