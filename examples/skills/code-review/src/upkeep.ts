import { indentOf } from "./defects";
import { closing, matches } from "./parse";
import type { Parsed, Rule } from "./types";

const MOST_LINES = 80;
const MOST_LEVELS = 5;

export const todo: Rule = {
  name: "todo-without-owner",
  severity: "low",
  run(file, report) {
    for (const one of file.comments) {
      one.text.split("\n").forEach((text, at) => {
        const found = /(?:^|[\s#/*(])(TODO|FIXME|HACK|XXX)\b(.*)/.exec(text);
        if (!found || /^\s*\(\s*[@\w][^)]*\)|^\s*\[[^\]]+\]|@\w+|#\d+|\b[A-Z]{2,}-\d+\b|https?:/.test(found[2])) return;
        report(one.line + at, `${found[1]} without a name or an issue; say who will do it, or where it is tracked`);
      });
    }
  },
};

interface Block {
  name: string;
  first: number;
  last: number;
  levels: number;
  deepest: number;
}

const known = new WeakMap<Parsed, Block[]>();

function blocks(file: Parsed): Block[] {
  const found = known.get(file) ?? (file.language === "python" ? pythonBlocks(file) : bracedBlocks(file));
  known.set(file, found);
  return found;
}

function pythonBlocks(file: Parsed): Block[] {
  const found: Block[] = [];
  file.codeLines.forEach((code, at) => {
    const head = /^(\s*)(?:async\s+)?def\s+(\w+)/.exec(code);
    if (!head) return;
    const depth = indentOf(code);
    const block: Block = { name: head[2], first: at + 1, last: at + 1, levels: 0, deepest: at + 1 };
    const open = file.startOf(at + 1) + code.indexOf("(");
    const from = code.includes("(") ? file.lineAt(closing(file.code, open)) : at + 1;
    const stack = [depth];
    let inside = 0;
    for (let next = from; next < file.codeLines.length; next++) {
      const line = file.codeLines[next];
      if (!line.trim()) continue;
      const here = indentOf(line);
      if (inside <= 0) {
        if (here <= depth) break;
        while (stack.length && stack.at(-1)! >= here) stack.pop();
        stack.push(here);
        if (stack.length - 1 > block.levels && !/^\s*(?:async\s+)?def\b/.test(line)) {
          block.levels = stack.length - 1;
          block.deepest = next + 1;
        }
        block.last = next + 1;
      }
      inside += (line.match(/[([{]/g)?.length ?? 0) - (line.match(/[)\]}]/g)?.length ?? 0);
    }
    found.push(block);
  });
  return found;
}

const HEADS = /\bfunction\s*\*?\s*([\w$]*)\s*\(|(?:\b(?:const|let|var)\s+([\w$]+)\s*=\s*(?:async\s*)?(?:\([^()]*\)|[\w$]+)\s*(?::[^=\n]+)?=>\s*)\{|^[ \t]+(?:(?:public|private|protected|static|async|override|final)\s+)*(?!if|for|while|switch|catch|return|function|new|else|do|with)([\w$]+)\s*\([^()]*\)\s*(?::\s*[^{;=\n]+)?\{/gm;

function bracedBlocks(file: Parsed): Block[] {
  const found: Block[] = [];
  for (const head of matches(file.code, HEADS)) {
    let open = head.index + head[0].length - 1;
    if (file.code[open] === "(") {
      open = file.code.indexOf("{", closing(file.code, open));
      if (open < 0 || open - head.index > 400) continue;
    }
    const end = closing(file.code, open);
    let depth = 0;
    const block: Block = { name: head[1] || head[2] || head[3] || "a function", first: file.lineAt(head.index + head[0].search(/\S/)), last: file.lineAt(end), levels: 0, deepest: 0 };
    const kinds: boolean[] = [];
    for (let at = open; at < end; at++) {
      if (file.code[at] === "{") {
        // Of the brackets only those of statements count, not those of objects.
        const before = file.code.slice(Math.max(0, at - 60), at).trimEnd();
        const statement = at === open || /(?:\)|\belse|\btry|\bdo|\bfinally|\bcatch)$/.test(before);
        kinds.push(statement);
        if (statement && ++depth > block.levels) {
          block.levels = depth;
          block.deepest = file.lineAt(at);
        }
      } else if (file.code[at] === "}" && kinds.pop()) depth--;
    }
    found.push(block);
  }
  return found;
}

export const longFunction: Rule = {
  name: "long-function",
  severity: "low",
  languages: ["python", "javascript"],
  run(file, report) {
    for (const block of blocks(file)) {
      const lines = block.last - block.first + 1;
      if (lines > MOST_LINES) report(block.first, `${block.name} has ${lines} lines; ${MOST_LINES} are easier to follow: take steps out of it`);
    }
  },
};

export const deepNesting: Rule = {
  name: "deep-nesting",
  severity: "low",
  languages: ["python", "javascript"],
  run(file, report) {
    for (const block of blocks(file)) {
      if (block.levels > MOST_LEVELS) report(block.deepest, `${block.levels} levels deep in ${block.name}; leave early, or take the inside out`);
    }
  },
};

export const unusedImport: Rule = {
  name: "unused-import",
  severity: "low",
  languages: ["python", "javascript"],
  run(file, report) {
    if (/(?:^|\/)(?:__init__\.py|conftest\.py|index\.[jt]sx?)$|\.d\.ts$|\.pyi$/.test(file.path)) return;
    const imported = file.language === "python" ? pythonImports(file) : scriptImports(file);
    const words = new Map<string, number>();
    for (const [word] of matches(file.code, /[A-Za-z_$][\w$]*/g)) words.set(word, (words.get(word) ?? 0) + 1);
    for (const { name, line, count } of imported) {
      if ((words.get(name) ?? 0) > count || quotedName(file, name)) continue;
      report(line, `${name} is imported and not used`);
    }
  },
};

interface Imported {
  name: string;
  line: number;
  count: number;
}

/** Names may stand in literals: annotations, lists of what is exported, templates. */
function quotedName(file: Parsed, name: string): boolean {
  const word = new RegExp(`(?<![\\w$])${name.replace(/\$/g, "\\$")}(?![\\w$])`);
  return file.strings.some((one) => one.text.length < 4000 && word.test(one.text) && (file.language === "javascript" ? file.raw[one.start] === "`" : true)) || (file.language === "python" && file.comments.some((one) => /type:/.test(one.text) && word.test(one.text)));
}

function pythonImports(file: Parsed): Imported[] {
  const found: Imported[] = [];
  for (const one of matches(file.code, /^(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n;]+)/gm)) {
    const line = file.lineAt(one.index);
    if (one[1] === "__future__" || optional(file, line)) continue;
    for (const part of one[2].replace(/[()\\]/g, " ").split(",")) {
      const words = part.trim().split(/\s+/);
      if (!words[0] || words[0] === "*") continue;
      const name = words[1] === "as" ? words[2] : words[0].split(".")[0];
      // `import x as x` says that it is meant for others.
      if (!name || (words[1] === "as" && words[0] === words[2])) continue;
      const at = file.lineAt(one.index + one[0].search(new RegExp(`\\b${name}\\b`)));
      if (/#\s*noqa/.test(file.lines[at - 1]) || /#\s*noqa/.test(file.lines[line - 1])) continue;
      const count = [...matches(one[0], new RegExp(`(?<![\\w.])${name}(?![\\w])`, "g"))].length;
      found.push({ name, line: at, count: Math.max(1, count) });
    }
  }
  return merged(found);
}

/** Whether the import is tried, so that it may be there for its failing. */
function optional(file: Parsed, line: number): boolean {
  for (let at = line - 2; at >= 0; at--) {
    const text = file.codeLines[at];
    if (text.trim()) return /^\s*(?:try|except.*|if.*|else)\s*:\s*$/.test(text);
  }
  return false;
}

function scriptImports(file: Parsed): Imported[] {
  const found: Imported[] = [];
  for (const one of matches(file.code, /^[ \t]*import\s+(?:type\s+)?([^"';]+?)\s+from\s*["']/gm)) {
    for (const name of bound(one[1])) {
      if (name === "React" || name === "h") continue;
      const at = file.lineAt(one.index + Math.max(0, one[0].search(new RegExp(`(?<![\\w$])${name.replace(/\$/g, "\\$")}(?![\\w$])`))));
      const count = [...matches(one[0], new RegExp(`(?<![\\w$])${name.replace(/\$/g, "\\$")}(?![\\w$])`, "g"))].length;
      found.push({ name, line: at, count });
    }
  }
  return merged(found);
}

function bound(clause: string): string[] {
  const names: string[] = [];
  const inside = /\{([^}]*)\}/.exec(clause);
  for (const part of (inside?.[1] ?? "").split(",")) {
    const name = part.trim().replace(/^type\s+/, "").split(/\s+as\s+/).at(-1);
    if (name) names.push(name);
  }
  for (const part of clause.replace(/\{[^}]*\}/, "").split(",")) {
    const name = part.trim().replace(/^\*\s+as\s+/, "");
    if (/^[\w$]+$/.test(name)) names.push(name);
  }
  return names;
}

function merged(found: Imported[]): Imported[] {
  const total = new Map<string, number>();
  for (const one of found) total.set(one.name, (total.get(one.name) ?? 0) + one.count);
  return found.map((one) => ({ ...one, count: total.get(one.name)! }));
}

export const debugOutput: Rule = {
  name: "leftover-debugging",
  severity: "low",
  languages: ["python", "javascript"],
  run(file, report) {
    if (file.language === "python") {
      for (const found of matches(file.code, /^\s*(breakpoint\s*\(|(?:i?pdb)\.set_trace\s*\()/gm)) report(file.lineAt(found.index + found[0].search(/\S/)), "a breakpoint was left in", "medium");
      if (!file.raw.includes("print(")) return;
      for (const found of matches(file.raw, /^[ \t]*print\(\s*f?["'](?:debug|here\b|xxx|test\d*["']|>>>|---+["']|\{\w+=\})/gim)) report(file.lineAt(found.index), "this print looks like one for debugging; remove it, or use logging");
      return;
    }
    for (const found of matches(file.code, /^\s*debugger\s*;?\s*$/gm)) report(file.lineAt(found.index + found[0].search(/\S/)), "a debugger statement was left in", "medium");
    if (/(?:^|\/)(?:bin|cli|scripts?|tools?|examples?|tests?|__tests__|benchmarks?)\/|(?:test|spec|cli|config)\.[mc]?[jt]sx?$|^#!/.test(file.path) || file.raw.startsWith("#!")) return;
    for (const found of matches(file.code, /(?<![\w.])console\.(?:log|debug|dir)\s*\(/g)) report(file.lineAt(found.index), "console output was left in; remove it, or use a logger");
  },
};
