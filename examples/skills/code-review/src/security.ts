import { closing, matches } from "./parse";
import type { Parsed, Piece, Rule } from "./types";

// What must be in the text at all, then the form.
const KNOWN: [string, RegExp, string][] = [
  ["AKIA", /\bAKIA[0-9A-Z]{16}\b/, "an AWS access key"],
  ["gh", /\bgh[pousr]_[A-Za-z0-9]{36,}\b/, "a GitHub token"],
  ["github_pat_", /\bgithub_pat_[A-Za-z0-9_]{60,}\b/, "a GitHub token"],
  ["glpat-", /\bglpat-[A-Za-z0-9_-]{20,}\b/, "a GitLab token"],
  ["xox", /\bxox[abprs]-[A-Za-z0-9-]{20,}\b/, "a Slack token"],
  ["k_live_", /\b[rs]k_live_[A-Za-z0-9]{20,}\b/, "a Stripe key"],
  ["AIza", /\bAIza[0-9A-Za-z_-]{35}\b/, "a Google API key"],
  ["sk-", /\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{32,}\b/, "an API key"],
  ["PRIVATE KEY", /-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----/, "a private key"],
];
const NAME = /(?:^|[^A-Za-z])[\w.-]*?(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token|private[_-]?key)[\w-]*["'\]]?\s*(?::\s*[\w.[\]| ]+)?(?:=|:|=>|:=)\s*[bru]?$/i;
const NO_SECRET = /^(?:$|[<{[(%$].*|.*(?:example|changeme|change[_-]me|placeholder|redacted|dummy|sample|your[_-]|xxx|\*\*\*|\.\.\.|test|fake|none|null|todo).*|[a-z]+|[A-Z_]+|https?:.*|[\w-]+\.[\w.-]+|.*\s.*|[./~].*|.*[{}].*)$/i;

function mixed(text: string): boolean {
  const kinds = [/[a-z]/, /[A-Z]/, /\d/, /[^A-Za-z\d]/].filter((one) => one.test(text)).length;
  return kinds >= 2 && new Set(text).size >= 6;
}

export const secret: Rule = {
  name: "hard-coded-secret",
  severity: "high",
  run(file, report) {
    const told = new Set<number>();
    const possible = KNOWN.filter(([part]) => file.raw.includes(part));
    file.lines.forEach((text, at) => {
      const known = possible.find(([part, pattern]) => text.includes(part) && pattern.test(text));
      if (known && !/EXAMPLE/.test(text)) {
        told.add(at + 1);
        report(at + 1, `${known[2]} stands in the source; revoke it and read it from the environment or a secret store`);
      }
    });
    for (const piece of file.strings) {
      if (told.has(piece.line) || piece.text.length < 8 || NO_SECRET.test(piece.text) || !mixed(piece.text)) continue;
      const before = file.raw.slice(Math.max(0, piece.start - 80), piece.start).split("\n").at(-1)!;
      if (NAME.test(before)) report(piece.line, "a password, key or token is written in the source; read it from the environment or a secret store");
    }
  },
};

const EVALS: Record<string, RegExp> = {
  python: /(?<![\w.])(eval|exec)\s*\(/g,
  javascript: /(?<![\w.$])(eval|new\s+Function)\s*\(/g,
};

export const evaluation: Rule = {
  name: "eval",
  severity: "high",
  languages: ["python", "javascript"],
  run(file, report) {
    for (const found of matches(file.code, EVALS[file.language])) {
      const before = file.code.slice(Math.max(0, found.index - 12), found.index);
      if (/\b(?:def|function)\s+$/.test(before)) continue;
      const inside = argument(file, found.index + found[0].length - 1);
      if (isLiteral(inside)) continue;
      report(file.lineAt(found.index), `${found[1].replace(/\s+/g, " ")} runs whatever text it is given; parse the value, or choose from a fixed table`);
    }
  },
};

/** The text between the brackets, as it stands. */
function argument(file: Parsed, open: number): string {
  return file.raw.slice(open + 1, closing(file.code, open)).trim();
}

function isLiteral(text: string): boolean {
  return /^[bru]?(?:"[^"\n]*"|'[^'\n]*')\s*,?$/.test(text);
}

export const shellCommand: Rule = {
  name: "shell-injection",
  severity: "high",
  languages: ["python", "javascript"],
  run(file, report) {
    if (file.language === "python") pythonShell(file, report);
    else nodeShell(file, report);
  },
};

function pythonShell(file: Parsed, report: (line: number, message: string) => void): void {
  for (const found of matches(file.code, /\bsubprocess\.(?:run|call|check_call|check_output|Popen|getoutput)\s*\(/g)) {
    const open = found.index + found[0].length - 1;
    const code = file.code.slice(open, closing(file.code, open));
    const first = argument(file, open).split(/,\s*(?=\w+\s*=)/)[0];
    if (/\bshell\s*=\s*True\b/.test(code) && !isLiteral(first)) {
      report(file.lineAt(found.index), "a command that is put together goes through a shell (shell=True); pass a list of words without a shell");
    }
  }
  for (const found of matches(file.code, /\bos\.(?:system|popen)\s*\(/g)) {
    if (isLiteral(argument(file, found.index + found[0].length - 1))) continue;
    report(file.lineAt(found.index), "os.system and os.popen hand text to a shell; use subprocess.run with a list of words");
  }
}

function nodeShell(file: Parsed, report: (line: number, message: string) => void): void {
  if (!/child_process/.test(file.raw)) return;
  for (const found of matches(file.code, /(?<![\w$])(?:child_process\.|cp\.)?(?:exec|execSync)\s*\(/g)) {
    if (file.code[found.index - 1] === ".") continue;
    const inside = argument(file, found.index + found[0].length - 1);
    if (/^`[^`]*\$\{/.test(inside) || /^["'`][^"'`]*["'`]\s*\+/.test(inside) || /^[\w.]+\s*\+/.test(inside)) {
      report(file.lineAt(found.index), "a command that is put together goes through a shell; use execFile or spawn with a list of words");
    }
  }
}

const SQL = /^\s*(?:SELECT\s[\s\S]*\sFROM\s|INSERT\s+INTO\s|UPDATE\s[\s\S]*\sSET\s|DELETE\s+FROM\s|DROP\s+TABLE\s)/i;

export const sqlText: Rule = {
  name: "sql-injection",
  severity: "high",
  languages: ["python", "javascript", "java", "go", "other"],
  run(file, report) {
    for (const piece of file.strings) {
      if (SQL.test(piece.text) && isBuilt(file, piece)) {
        report(piece.line, "SQL is put together with values in its text; use placeholders and pass the values beside it");
      }
    }
  },
};

function isBuilt(file: Parsed, piece: Piece): boolean {
  const before = file.raw.slice(Math.max(0, piece.start - 3), piece.start);
  const after = file.code.slice(piece.end, piece.end + 40);
  if (file.language === "python") {
    if (/[fF][rR]?$|[rR][fF]$/.test(before)) return /(?:=|IN|VALUES|LIKE|,|\()\s*\(?\s*['"%]?\{[^}]+\}/i.test(piece.text);
    return /^\s*%\s*[\w(]/.test(after) || (/^\s*\.format\s*\(/.test(after) && /(?:=|IN|VALUES|LIKE|,)\s*\(?\s*['"%]?\{/i.test(piece.text)) || concatenated(piece, after);
  }
  if (file.raw[piece.start] === "`" && file.language === "javascript") {
    const tag = /[\w$)\]]$/.test(before);
    return !tag && /(?:=|IN|VALUES|LIKE|,|\()\s*\(?\s*['"%]?\$\{/i.test(piece.text);
  }
  return concatenated(piece, after);
}

/** A value follows, and what stands before it says that a value is wanted. */
function concatenated(piece: Piece, after: string): boolean {
  return /^\s*\+\s*[A-Za-z_$(]/.test(after) && /(?:=|LIKE|IN\s*\(|VALUES\s*\()\s*['"%]?$/i.test(piece.text.trimEnd() + "");
}

interface Call {
  pattern: RegExp;
  message: string;
  unless?: RegExp;
  only?: RegExp;
}

const CALLS: Partial<Record<Parsed["language"], Call[]>> = {
  python: [
    { pattern: /\byaml\.load\s*\(/g, unless: /Loader/, message: "yaml.load without a safe loader can create any object; use yaml.safe_load" },
    { pattern: /\b(?:pickle|cPickle|marshal|dill)\.loads?\s*\(/g, message: "loading pickled data runs code that is in it; use JSON for data from outside" },
    { pattern: /\brequests\.\w+\s*\(/g, only: /\bverify\s*=\s*False\b/, message: "verify=False accepts any server; remove it, or name the certificate" },
    { pattern: /\btempfile\.mktemp\s*\(/g, message: "tempfile.mktemp can be raced; use mkstemp or NamedTemporaryFile" },
  ],
  c: [
    { pattern: /(?<![\w.>])gets\s*\(/g, message: "gets can not know how much room there is; use fgets" },
    { pattern: /(?<![\w.>])(?:strcpy|strcat|sprintf|vsprintf)\s*\(/g, message: "nothing bounds what is written here; use the form that takes a size" },
  ],
  go: [{ pattern: /\bInsecureSkipVerify\s*:\s*true\b/g, message: "InsecureSkipVerify accepts any server; remove it" }],
  javascript: [
    { pattern: /\brejectUnauthorized\s*:\s*false\b/g, message: "rejectUnauthorized: false accepts any server; remove it" },
    { pattern: /\.(?:innerHTML|outerHTML)\s*\+?=(?!=)\s*(?!\s*["'`]\s*["'`])/g, message: "text that becomes HTML can bring scripts along; use textContent, or clean it first", unless: /^\s*(?:"[^"]*"|'[^']*'|`[^`$]*`)\s*;?$/ },
    { pattern: /\bdangerouslySetInnerHTML\s*=/g, message: "HTML from a value can bring scripts along; clean it first" },
  ],
};

export const dangerousCall: Rule = {
  name: "dangerous-call",
  severity: "medium",
  languages: ["python", "c", "go", "javascript"],
  run(file, report) {
    for (const { pattern, message, unless, only } of CALLS[file.language] ?? []) {
      for (const found of matches(file.code, pattern)) {
        const last = found.index + found[0].length;
        const rest = file.code[last - 1] === "(" ? file.code.slice(last - 1, closing(file.code, last - 1)) : file.raw.slice(last, file.raw.indexOf("\n", last) < 0 ? undefined : file.raw.indexOf("\n", last));
        if (unless?.test(rest) || (only && !only.test(rest))) continue;
        report(file.lineAt(found.index), message);
      }
    }
  },
};

export const shellScript: Rule = {
  name: "shell-pitfall",
  severity: "medium",
  languages: ["shell"],
  run(file, report) {
    file.codeLines.forEach((code, at) => {
      const raw = file.lines[at];
      if (/\b(?:curl|wget)\b[^|#]*\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b/.test(code)) report(at + 1, "a download is run as it comes; keep it, check its hash, then run it", "high");
      if (/\brm\s+-[a-z]*r[a-z]*\s+(?:-\w+\s+)*\$\{?\w+\}?(?:\/|\s|$)/.test(code) && !/:\?/.test(raw)) report(at + 1, 'an empty variable makes this remove too much; quote it and write "${NAME:?}"');
    });
  },
};
