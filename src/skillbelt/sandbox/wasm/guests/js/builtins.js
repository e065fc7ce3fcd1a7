// The modules of node that a script can import.
import { Buffer, TextDecoder, TextEncoder } from "./bytes.js";
import EventEmitter from "./events.js";
import fs from "./files.js";
import { crypto } from "./globals.js";
import { format, inspect } from "./inspect.js";
import path from "./path.js";
import { process } from "./process.js";
import * as timers from "./timers.js";
import { URL, URLSearchParams, fileURLToPath, pathToFileURL } from "./url.js";

class AssertionError extends Error {
  name = "AssertionError";
  code = "ERR_ASSERTION";
}

function same(one, other, strict) {
  if (strict ? Object.is(one, other) : one == other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return !strict && one !== one && other !== other;
  if (Array.isArray(one) !== Array.isArray(other) || (strict && Object.getPrototypeOf(one) !== Object.getPrototypeOf(other))) return false;
  if (one instanceof Date && other instanceof Date) return one.getTime() === other.getTime();
  if (one instanceof Map || one instanceof Set) {
    return other.constructor === one.constructor && one.size === other.size && same([...one], [...other], strict);
  }
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => Object.hasOwn(other, key) && same(one[key], other[key], strict));
}

function check(holds, message, fallback) {
  if (holds) return;
  if (message instanceof Error) throw message;
  throw new AssertionError(message ?? fallback);
}

function assert(value, message) {
  check(value, message, "The expression evaluated to a falsy value");
}
Object.assign(assert, {
  AssertionError,
  ok: assert,
  equal: (one, other, message) => check(one == other, message, `${inspect(one)} == ${inspect(other)}`),
  notEqual: (one, other, message) => check(one != other, message, `${inspect(one)} != ${inspect(other)}`),
  strictEqual: (one, other, message) => check(Object.is(one, other), message, `Expected values to be strictly equal:\n\n${inspect(one)} !== ${inspect(other)}\n`),
  notStrictEqual: (one, other, message) => check(!Object.is(one, other), message, "Expected values to be strictly unequal"),
  deepEqual: (one, other, message) => check(same(one, other, false), message, "Expected values to be loosely deep-equal"),
  deepStrictEqual: (one, other, message) => check(same(one, other, true), message, `Expected values to be strictly deep-equal:\n${inspect(one)}\n\nshould loosely deep-equal\n\n${inspect(other)}`),
  notDeepStrictEqual: (one, other, message) => check(!same(one, other, true), message, "Expected values not to be deep-equal"),
  match: (text, pattern, message) => check(pattern.test(text), message, `The input did not match the regular expression ${pattern}`),
  fail: (message) => check(false, message, "Failed"),
  throws: (action, expected, message) => {
    try {
      action();
    } catch (error) {
      if (expected instanceof RegExp) check(expected.test(String(error)), message, `The error did not match ${expected}`);
      return;
    }
    check(false, message, "Missing expected exception.");
  },
  rejects: async (given, message) => {
    try {
      await (typeof given === "function" ? given() : given);
    } catch {
      return;
    }
    check(false, message, "Missing expected rejection.");
  },
});
assert.strict = assert;

const promisify = (action) => (...given) => new Promise((done, failed) => action(...given, (error, value) => (error ? failed(error) : done(value))));
const util = {
  inspect,
  format,
  promisify,
  TextDecoder,
  TextEncoder,
  isDeepStrictEqual: (one, other) => same(one, other, true),
  inherits: (child, parent) => Object.setPrototypeOf(child.prototype, parent.prototype),
  deprecate: (action) => action,
  stripVTControlCharacters: (text) => text.replace(/\u001b\[[\d;]*[A-Za-z]/g, ""),
  parseArgs,
  types: { isDate: (one) => one instanceof Date, isRegExp: (one) => one instanceof RegExp, isPromise: (one) => one instanceof Promise, isMap: (one) => one instanceof Map, isSet: (one) => one instanceof Set },
};

function parseArgs({ args = process.argv.slice(2), options = {}, strict = true, allowPositionals = !strict } = {}) {
  const values = {};
  const positionals = [];
  const short = Object.fromEntries(Object.entries(options).flatMap(([name, one]) => (one.short ? [[one.short, name]] : [])));
  for (const [name, one] of Object.entries(options)) if (one.default !== undefined) values[name] = one.default;
  for (let at = 0; at < args.length; at++) {
    const word = args[at];
    if (word === "--") {
      positionals.push(...args.slice(at + 1));
      break;
    }
    const found = /^--([^=]+)(?:=([\s\S]*))?$/.exec(word) ?? (/^-[A-Za-z]$/.test(word) ? [word, short[word[1]] ?? word[1], undefined] : null);
    if (!found) {
      if (!allowPositionals) throw new TypeError(`Unexpected argument '${word}'. This command does not take positional arguments`);
      positionals.push(word);
      continue;
    }
    const [, name, inline] = found;
    const one = options[name];
    if (!one && strict) throw new TypeError(`Unknown option '${word}'`);
    const value = one?.type === "string" ? (inline ?? args[++at]) : (inline ?? true);
    if (value === undefined) throw new TypeError(`Option '--${name} <value>' argument missing`);
    values[name] = one?.multiple ? [...(Array.isArray(values[name]) && values[name] !== one.default ? values[name] : []), value] : value;
  }
  return { values, positionals };
}

const os = {
  EOL: "\n",
  platform: () => "linux",
  type: () => "Linux",
  arch: () => "wasm32",
  release: () => "",
  tmpdir: () => process.env.TMPDIR || "/tmp",
  homedir: () => process.env.HOME || "/",
  hostname: () => "localhost",
  cpus: () => [],
  availableParallelism: () => 1,
};

const sleep = (delay, value) => new Promise((done) => timers.setTimeout(() => done(value), delay));

function createInterface({ input }) {
  const emitter = new EventEmitter();
  const lines = async function* () {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const piece of input) {
      const parts = (rest + (typeof piece === "string" ? piece : decoder.decode(piece, { stream: true }))).split(/\r?\n/);
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  };
  let started = false;
  const begin = () => {
    if (started) return;
    started = true;
    timers.setImmediate(async () => {
      for await (const line of lines()) emitter.emit("line", line);
      emitter.emit("close");
    });
  };
  return {
    on(name, listener) {
      emitter.on(name, listener);
      begin();
      return this;
    },
    once(name, listener) {
      emitter.once(name, listener);
      begin();
      return this;
    },
    close() {},
    [Symbol.asyncIterator]: lines,
  };
}

export const builtins = {
  assert,
  "assert/strict": assert,
  buffer: { Buffer },
  crypto: { ...crypto, webcrypto: crypto },
  events: EventEmitter,
  fs,
  "fs/promises": fs.promises,
  os,
  path,
  "path/posix": path,
  get perf_hooks() {
    return { performance };
  },
  process,
  readline: { createInterface },
  timers,
  "timers/promises": { setTimeout: sleep, setImmediate: (value) => new Promise((done) => timers.setImmediate(() => done(value))) },
  url: { URL, URLSearchParams, fileURLToPath, pathToFileURL },
  util,
};

export function builtin(name) {
  const bare = name.replace(/^node:/, "");
  return Object.hasOwn(builtins, bare) ? builtins[bare] : undefined;
}
