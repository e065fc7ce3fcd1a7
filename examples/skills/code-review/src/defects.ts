import { closing, matches } from "./parse";
import type { Parsed, Rule } from "./types";

export const bareExcept: Rule = {
  name: "bare-except",
  severity: "medium",
  languages: ["python"],
  run(file, report) {
    file.codeLines.forEach((code, at) => {
      if (!/^\s*except\s*:/.test(code)) return;
      const body = bodyOf(file, at);
      if (body.some((line) => /^\s*raise\s*$/.test(line))) return;
      report(at + 1, "a bare except also catches KeyboardInterrupt and SystemExit; name the exception");
    });
  },
};

/** The lines that belong to the one that ends in a colon. */
function bodyOf(file: Parsed, at: number): string[] {
  const depth = indentOf(file.codeLines[at]);
  const body: string[] = [];
  for (let next = at + 1; next < file.codeLines.length; next++) {
    const line = file.codeLines[next];
    if (line.trim() && indentOf(line) <= depth) break;
    body.push(line);
  }
  return body;
}

export function indentOf(line: string): number {
  return line.replace(/\t/g, "    ").search(/\S|$/);
}

export const swallowed: Rule = {
  name: "swallowed-error",
  severity: "medium",
  languages: ["python", "javascript", "java"],
  run(file, report) {
    if (file.language === "python") {
      file.codeLines.forEach((code, at) => {
        if (!/^\s*except\s+\(?(?:Base)?Exception\b.*:\s*$/.test(code)) return;
        const body = bodyOf(file, at).filter((line) => line.trim());
        if (body.length === 1 && body[0].trim() === "pass" && !explained(file, at)) report(at + 1, "every error is silently dropped here; catch the one that is expected, or log it");
      });
      return;
    }
    for (const found of matches(file.code, /\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}/g)) {
      const end = found.index + found[0].length;
      if (file.comments.some((one) => one.start > found.index && one.end <= end)) continue;
      report(file.lineAt(found.index), "errors are silently dropped here; handle them, or say in a comment why not");
    }
  },
};

function explained(file: Parsed, at: number): boolean {
  return file.comments.some((one) => one.line >= at + 1 && one.line <= at + 2);
}

export const looseEquality: Rule = {
  name: "loose-equality",
  severity: "low",
  languages: ["javascript"],
  run(file, report) {
    for (const found of matches(file.code, /(?<![=!<>])(==|!=)(?!=)/g)) {
      const before = file.code.slice(Math.max(0, found.index - 40), found.index);
      const after = file.code.slice(found.index + 2, found.index + 42);
      if (/^\s*(?:null|undefined)\b/.test(after) || /\b(?:null|undefined)\s*$/.test(before)) continue;
      if (/\btypeof\s+[\w.$]+\s*$/.test(before)) continue;
      report(file.lineAt(found.index), `${found[1]} converts its operands; use ${found[1]}=`);
    }
  },
};

export const mutableDefault: Rule = {
  name: "mutable-default",
  severity: "medium",
  languages: ["python"],
  run(file, report) {
    for (const found of matches(file.code, /\bdef\s+\w+\s*\(/g)) {
      const open = found.index + found[0].length - 1;
      const given = file.code.slice(open, closing(file.code, open));
      for (const one of matches(given, /\b(\w+)\s*(?::[^,=]+)?=\s*(?:\[\s*\]|\{\s*\}|(?:list|dict|set)\(\s*\))/g)) {
        report(file.lineAt(open + one.index), `the default of ${one[1]} is made once and shared by all calls; use None and make it inside`);
      }
    }
  },
};

export const identity: Rule = {
  name: "is-literal",
  severity: "medium",
  languages: ["python"],
  run(file, report) {
    for (const found of matches(file.code, /\bis\s+(?:not\s+)?(?:["']|\d)/g)) {
      const before = file.code.slice(Math.max(0, found.index - 60), found.index).split("\n").at(-1)!;
      if (/[\w)\]]\s*$/.test(before)) report(file.lineAt(found.index), "`is` compares identity, not value; use == here");
    }
  },
};

export const assertTuple: Rule = {
  name: "assert-tuple",
  severity: "medium",
  languages: ["python"],
  run(file, report) {
    for (const found of matches(file.code, /^\s*assert\s*\(/gm)) {
      const open = found.index + found[0].length - 1;
      const end = closing(file.code, open);
      const rest = file.code.slice(end + 1, end + 20);
      if (/^\s*(?:\n|$|#)/.test(rest) && topComma(file.code.slice(open + 1, end))) report(file.lineAt(open), "a tuple is always true, so this assert can not fail; remove the brackets");
    }
  },
};

function topComma(text: string): boolean {
  let depth = 0;
  for (const here of text) {
    if ("([{".includes(here)) depth++;
    else if (")]}".includes(here)) depth--;
    else if (here === "," && depth === 0) return true;
    else if (here === "f" && depth === 0 && /\bfor\b/.test(text)) return false;
  }
  return false;
}

export const missingAwait: Rule = {
  name: "missing-await",
  severity: "high",
  languages: ["javascript", "python"],
  run(file, report) {
    const names = asyncNames(file);
    if (file.language === "python" && file.code.includes("asyncio.")) names.push("asyncio.sleep", "asyncio.gather", "asyncio.wait_for");
    const last = file.codeLines.findLastIndex((line) => line.trim());
    for (const name of names) {
      const start = new RegExp(`^(\\s*)(?:self\\.|this\\.)?${name.replace(/[.$]/g, "\\$&")}\\s*\\(`);
      file.codeLines.forEach((code, at) => {
        if (!start.test(code) || continues(file.codeLines, at)) return;
        const open = file.startOf(at + 1) + code.indexOf("(");
        const after = file.code.slice(closing(file.code, open) + 1, closing(file.code, open) + 40);
        if (!/^\s*;?\s*(?:\n|$|\/\/|#)/.test(after) || /^\s*\n?\s*\.\s*(?:then|catch|finally)/.test(after)) return;
        // A program that ends with its main function is one that is meant so.
        if (file.language === "javascript" && at === last && !/^\s/.test(code)) return;
        report(at + 1, `${name} is asynchronous and nobody waits for it; write await`);
      });
    }
  },
};

function asyncNames(file: Parsed): string[] {
  const pattern = file.language === "python" ? /\basync\s+def\s+(\w+)/g : /\basync\s+function\s*\*?\s*([\w$]+)|\b(?:const|let)\s+([\w$]+)\s*=\s*async\b/g;
  const found = [...matches(file.code, pattern)].map((one) => one[1] ?? one[2]);
  const plain = file.language === "python" ? /(?<!async\s)\bdef\s+(\w+)/g : /(?<!async\s)\bfunction\s*\*?\s*([\w$]+)/g;
  const others = new Set([...matches(file.code, plain)].map((one) => one[1]));
  return [...new Set(found)].filter((name) => !others.has(name));
}

/** Whether the line goes on with what the one before began. */
function continues(lines: string[], at: number): boolean {
  for (let before = at - 1; before >= 0; before--) {
    const text = lines[before].trimEnd();
    if (text.trim()) return /(?:[=(,?:&|+[]|=>|\breturn|\bawait|\\)$/.test(text) && !/^\s*(?:case\b.*|default|else|try|finally|(?:async\s+)?(?:def|for|if|elif|while|with|except|class)\b.*):$/.test(text);
  }
  return false;
}

export const conflict: Rule = {
  name: "merge-conflict",
  severity: "high",
  run(file, report) {
    const marks = file.lines.findIndex((line) => /^<{7} \S/.test(line));
    if (marks >= 0 && file.lines.some((line) => /^>{7} \S/.test(line))) report(marks + 1, "a merge conflict was left in the file");
  },
};
