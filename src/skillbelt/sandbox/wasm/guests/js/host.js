// The JavaScript host: it runs a script as `node SCRIPT` would, inside a WASM component.
import { encode } from "./bytes.js";
import fs from "./files.js";
import { inspect } from "./inspect.js";
import { AsyncFunction, evaluate, prepared, requireFrom } from "./loader.js";
import { resolve } from "./path.js";
import { argv, cwd } from "./place.js";
import { process } from "./process.js";
import { program } from "./program.js";
import { write } from "./streams.js";
import { awaited } from "./trailing.js";

const WITH_VALUE = /^(-r|--require|--import|--input-type|--conditions|-C|--env-file)$/;

function parsed(words) {
  for (let at = 0; at < words.length; at++) {
    const word = words[at];
    if (word === "-e" || word === "--eval" || word === "-p" || word === "--print" || word === "-pe") {
      return { kind: word.includes("p") && word !== "--eval" ? "print" : "code", what: words[at + 1] ?? "", given: words.slice(at + 2).filter((one, place) => place || one !== "--") };
    }
    if (word === "-v" || word === "--version") return { kind: "version" };
    if (word === "-") return { kind: "stdin", given: words.slice(at + 1) };
    if (!word.startsWith("-")) return { kind: "script", what: word, given: words.slice(at + 1) };
    if (WITH_VALUE.test(word)) at++;
  }
  return { kind: "stdin", given: [] };
}

function refuse(text) {
  write(2, encode(`${text}\n`));
  process.exitCode = 1;
}

function located(name) {
  const path = resolve(name);
  for (const one of [path, `${path}.js`, `${path}/index.js`]) {
    if (fs.statSync(one, { throwIfNoEntry: false })?.isFile()) return fs.realpathSync(one);
  }
  return undefined;
}

// The last call of a script is waited for where that can be said in its language.
function start(text, path, module) {
  for (const [kind, source] of [[AsyncFunction, awaited(text)], [AsyncFunction, text], [Function, text]]) {
    try {
      return evaluate(kind, prepared(source, path), path, module);
    } catch (error) {
      // Only what can not be read is tried in another way: nothing of it has run.
      if (!(error instanceof SyntaxError) || kind === Function) throw error;
    }
  }
  return undefined;
}

function runScript(call) {
  const path = located(call.what);
  if (!path) return refuse(`Error: Cannot find module '${resolve(call.what)}'`);
  process.arrive([process.execPath, resolve(call.what), ...call.given]);
  const module = { exports: {}, id: ".", filename: path, loaded: false };
  return start(fs.readFileSync(path, "utf8"), path, module);
}

function runCode(text, call) {
  process.arrive([process.execPath, ...call.given]);
  const path = `${cwd()}/[eval]`.replace("//", "/");
  globalThis.require = requireFrom(cwd());
  if (call.kind !== "print") return start(text, path, { exports: {} });
  write(1, encode(`${shown((0, eval)(text))}\n`));
  return undefined;
}

function shown(value) {
  return typeof value === "string" ? value : inspect(value);
}

function main() {
  const [name = "node", ...words] = argv();
  const call = parsed(words);
  process.execPath = name;
  if (call.kind === "script") return runScript(call);
  if (call.kind === "version") return void write(1, encode(`${process.version}\n`));
  if (call.kind === "stdin") return runCode(fs.readFileSync(0, "utf8"), call);
  return runCode(call.what, call);
}

const made = program(main);
export const { turn, pump, run } = made;
const begin = made.start;
export { begin as start };
