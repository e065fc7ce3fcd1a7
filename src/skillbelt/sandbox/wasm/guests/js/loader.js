// Scripts and the modules they import, read when they are run. ES modules and TypeScript are turned
// into what the engine can evaluate without a module loader of its own.
import { builtin } from "./builtins.js";
import fs from "./files.js";
import { dirname, extname, join, resolve } from "./path.js";
import { places } from "./program.js";
import { pathToFileURL } from "./url.js";

const ENDINGS = ["", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json"];
const TYPED = /\.[mc]?tsx?$/;
const MODULE = /^\s*(?:import\s*(?:[\w$*{"']|type\b)|export\s*(?:default\b|\*|\{|const\b|let\b|var\b|function\b|class\b|async\b|type\b|interface\b|enum\b|abstract\b|declare\b))/m;
const AsyncFunction = (async () => {}).constructor;
const loaded = new Map();

function isFile(path) {
  return fs.statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

function asFile(path) {
  for (const ending of ENDINGS) if (isFile(path + ending)) return path + ending;
  // In TypeScript the file that will be there after compiling is named.
  const typed = path.replace(/\.([mc]?)js$/, ".$1ts");
  return typed !== path && isFile(typed) ? typed : undefined;
}

function asFolder(path) {
  const described = join(path, "package.json");
  if (isFile(described)) {
    const about = JSON.parse(fs.readFileSync(described, "utf8"));
    const target = exported(about.exports) ?? about.main;
    const found = target && (asFile(join(path, target)) ?? asFile(join(path, target, "index")));
    if (found) return found;
  }
  return asFile(join(path, "index"));
}

function exported(given) {
  if (typeof given === "string" || !given) return given || undefined;
  const one = given["."] ?? given;
  if (typeof one === "string") return one;
  for (const name of ["require", "import", "node", "default"]) {
    const found = typeof one[name] === "string" ? one[name] : one[name] && exported(one[name]);
    if (found) return found;
  }
  return undefined;
}

function find(name, folder) {
  if (name.startsWith("file:")) return asFile(decodeURIComponent(new URL(name).pathname));
  if (/^\.{0,2}\//.test(name) || name === "." || name === "..") {
    const path = resolve(folder, name);
    return asFile(path) ?? asFolder(path);
  }
  for (let at = folder; ; at = dirname(at)) {
    const path = join(at, "node_modules", name);
    const found = asFile(path) ?? asFolder(path);
    if (found || at === "/") return found;
  }
}

export function requireFrom(folder, by) {
  const require = (name) => {
    const own = builtin(name);
    if (own !== undefined) return own;
    if (name.startsWith("node:")) throw missing(`No such built-in module in this sandbox: ${name}`, "ERR_UNKNOWN_BUILTIN_MODULE");
    const path = find(name, folder);
    if (!path) throw missing(`Cannot find module '${name}'${by ? `\nRequire stack:\n- ${by}` : ""}`, "MODULE_NOT_FOUND");
    return load(path).exports;
  };
  require.resolve = (name) => (builtin(name) === undefined ? (find(name, folder) ?? require(name)) : name);
  return require;
}

function missing(text, code) {
  return Object.assign(new Error(text), { code });
}

function load(path) {
  const known = loaded.get(path);
  if (known) return known;
  const module = { exports: {}, id: path, filename: path, loaded: false };
  loaded.set(path, module);
  try {
    const text = fs.readFileSync(path, "utf8");
    if (extname(path) === ".json") module.exports = JSON.parse(text);
    else evaluate(Function, prepared(text, path), path, module);
  } catch (error) {
    loaded.delete(path);
    throw error;
  }
  module.loaded = true;
  return module;
}

// The text as the body of a function, with as many lines as before.
export function prepared(text, path) {
  const source = text.replace(/^\ufeff/, "").replace(/^#!.*/, "");
  const typed = TYPED.test(path);
  const module = /\.m[jt]s$/.test(path) || (MODULE.test(source) && !/\.c[jt]s$/.test(path));
  if (!typed && !module && !/\bimport\s*[.(]/.test(source)) return source;
  // Not before it is needed: what it keeps in maps would be placed by the moment of building.
  const { transform } = require("sucrase");
  const transforms = [...(typed ? ["typescript"] : []), "imports"];
  const made = transform(source.replace(/\bimport\.meta\b/g, "__import_meta"), { transforms, disableESTransforms: true, filePath: path, production: true }).code;
  return made;
}

export function evaluate(kind, text, path, module) {
  const folder = dirname(path);
  places.name ||= path;
  places.host = true;
  const names = ["exports", "require", "module", "__filename", "__dirname", "__import_meta"];
  const keyword = kind === AsyncFunction ? "async function" : "function";
  const made = (0, eval)(`(${keyword} (${names.join(", ")}) {${text}\n})`);
  const meta = { url: pathToFileURL(path).href, filename: path, dirname: folder };
  return made.call(module.exports, module.exports, requireFrom(folder, path), module, path, folder, meta);
}

export { AsyncFunction };
