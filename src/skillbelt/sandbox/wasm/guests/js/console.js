// The console: to standard output and standard error.
import { encode } from "./bytes.js";
import { format, inspect } from "./inspect.js";
import { write } from "./streams.js";

let indent = "";
const counts = new Map();
const started = new Map();

function say(number, given) {
  const text = format(...given);
  write(number, encode(`${indent ? text.replace(/^/gm, indent) : text}\n`));
}

const log = (...given) => say(1, given);
const error = (...given) => say(2, given);

function elapsed(label) {
  const milliseconds = performance.now() - (started.get(label) ?? performance.now());
  return milliseconds >= 1000 ? `${(milliseconds / 1000).toFixed(3)}s` : `${milliseconds.toFixed(3)}ms`;
}

function table(rows) {
  if (rows === null || typeof rows !== "object") return log(rows);
  const names = Object.keys(rows);
  const columns = [];
  for (const name of names) {
    const row = rows[name];
    if (row !== null && typeof row === "object") for (const key of Object.keys(row)) if (!columns.includes(key)) columns.push(key);
  }
  const plain = names.some((name) => rows[name] === null || typeof rows[name] !== "object");
  const head = ["(index)", ...columns, ...(plain ? ["Values"] : [])];
  const body = names.map((name) => {
    const row = rows[name];
    const isRow = row !== null && typeof row === "object";
    const cells = columns.map((key) => (isRow && Object.hasOwn(row, key) ? inspect(row[key], { depth: 0 }) : ""));
    return [name, ...cells, ...(plain ? [isRow ? "" : inspect(row)] : [])];
  });
  const widths = head.map((one, at) => Math.max(one.length, ...body.map((row) => row[at].length)) + 2);
  const line = (row) => `│${row.map((one, at) => ` ${one}`.padEnd(widths[at])).join("│")}│`;
  const rule = (left, middle, right) => left + widths.map((width) => "─".repeat(width)).join(middle) + right;
  log([rule("┌", "┬", "┐"), line(head), rule("├", "┼", "┤"), ...body.map(line), rule("└", "┴", "┘")].join("\n"));
}

export const console = {
  log,
  info: log,
  debug: log,
  error,
  warn: error,
  trace: (...given) => error(`Trace: ${format(...given)}\n${new Error().stack.split("\n").slice(1).join("\n")}`),
  dir: (value, options) => write(1, encode(`${inspect(value, options)}\n`)),
  table,
  assert: (holds, ...given) => {
    if (!holds) error(given.length ? `Assertion failed: ${format(...given)}` : "Assertion failed");
  },
  group: (...given) => {
    if (given.length) log(...given);
    indent += "  ";
  },
  groupEnd: () => {
    indent = indent.slice(2);
  },
  count: (label = "default") => {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    log(`${label}: ${counts.get(label)}`);
  },
  countReset: (label = "default") => void counts.delete(label),
  time: (label = "default") => void started.set(label, performance.now()),
  timeLog: (label = "default", ...given) => log(`${label}: ${elapsed(label)}`, ...given),
  timeEnd: (label = "default") => {
    log(`${label}: ${elapsed(label)}`);
    started.delete(label);
  },
};
console.groupCollapsed = console.group;
