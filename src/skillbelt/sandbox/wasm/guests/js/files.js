// node:fs, as far as scripts use it, on the folders that the run was given.
import preopens from "wasi:filesystem/preopens@0.2.0";
import { Buffer, toBytes } from "./bytes.js";
import { dirname, join, resolve } from "./path.js";
import { readAll, readSome, write } from "./streams.js";

const PIECE = 1 << 20;
const ERRORS = {
  access: ["EACCES", 13, "permission denied"],
  "bad-descriptor": ["EBADF", 9, "bad file descriptor"],
  busy: ["EBUSY", 16, "resource busy or locked"],
  quota: ["EDQUOT", 122, "disk quota exceeded"],
  exist: ["EEXIST", 17, "file already exists"],
  "file-too-large": ["EFBIG", 27, "file too large"],
  invalid: ["EINVAL", 22, "invalid argument"],
  io: ["EIO", 5, "i/o error"],
  "is-directory": ["EISDIR", 21, "illegal operation on a directory"],
  loop: ["ELOOP", 40, "too many symbolic links encountered"],
  "name-too-long": ["ENAMETOOLONG", 36, "name too long"],
  "no-entry": ["ENOENT", 2, "no such file or directory"],
  "insufficient-space": ["ENOSPC", 28, "no space left on device"],
  "not-directory": ["ENOTDIR", 20, "not a directory"],
  "not-empty": ["ENOTEMPTY", 39, "directory not empty"],
  "not-permitted": ["EPERM", 1, "operation not permitted"],
  "read-only": ["EROFS", 30, "read-only file system"],
  "cross-device": ["EXDEV", 18, "cross-device link not permitted"],
};
const FOLLOW = { symlinkFollow: true };
let roots;

function failure(code, call, path, target) {
  const [name, number, text] = ERRORS[code] ?? [`E${String(code).toUpperCase()}`, 5, String(code)];
  const where = path === undefined ? "" : ` '${path}'${target === undefined ? "" : ` -> '${target}'`}`;
  const error = new Error(`${name}: ${text}, ${call}${where}`);
  Object.assign(error, { errno: -number, code: name, syscall: call });
  if (path !== undefined) error.path = path;
  if (target !== undefined) error.dest = target;
  return error;
}

// A call into WASI whose refusal is node's error for it.
function attempt(call, path, action, target) {
  try {
    return action();
  } catch (error) {
    if (error instanceof Error && "syscall" in error) throw error;
    throw failure(error?.payload ?? error?.val ?? error, call, path, target);
  }
}

// The folder that holds a path, and the rest of the path below it.
function locate(path) {
  roots ??= preopens.getDirectories().sort((one, other) => other[1].length - one[1].length);
  const whole = resolve(named(path));
  for (const [folder, name] of roots) {
    const base = name === "." ? resolve(".") : name.replace(/\/+$/, "");
    if (whole === base || base === "") return [folder, whole.slice(base.length + (base ? 0 : 1)) || "."];
    if (whole.startsWith(`${base}/`)) return [folder, whole.slice(base.length + 1)];
  }
  throw "no-entry";
}

function named(path) {
  if (path instanceof URL) return path.protocol === "file:" ? decodeURIComponent(path.pathname) : path.href;
  if (path instanceof Uint8Array) return Buffer.from(path).toString();
  if (typeof path !== "string") {
    const error = new TypeError(`The "path" argument must be of type string or an instance of Buffer or URL. Received ${path === null ? "null" : typeof path}`);
    error.code = "ERR_INVALID_ARG_TYPE";
    throw error;
  }
  return path;
}

function using(descriptor, action) {
  try {
    return action(descriptor);
  } finally {
    descriptor[Symbol.dispose]?.();
  }
}

function open(call, path, create, flags) {
  return attempt(call, path, () => {
    const [folder, rest] = locate(path);
    return folder.openAt(FOLLOW, rest, create, flags);
  });
}

function encodingOf(options) {
  return typeof options === "string" ? options : options?.encoding;
}

export function readFileSync(path, options) {
  const encoding = encodingOf(options);
  const bytes = path === 0 || path === "/dev/stdin" ? readAll() : using(open("open", path, {}, { read: true }), (file) => whole(file));
  return encoding && encoding !== "buffer" ? bytes.toString(encoding) : bytes;
}

function whole(file) {
  const pieces = [];
  let at = 0;
  for (;;) {
    const [bytes, end] = attempt("read", undefined, () => file.read(PIECE, at));
    pieces.push(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes));
    at += bytes.length;
    if (end || !bytes.length) return Buffer.concat(pieces);
  }
}

export function writeFileSync(path, data, options) {
  const bytes = toBytes(data, encodingOf(options));
  if (path === 1 || path === "/dev/stdout") return void write(1, bytes);
  if (path === 2 || path === "/dev/stderr") return void write(2, bytes);
  const flag = (typeof options === "object" && options?.flag) || "w";
  const create = { create: !flag.startsWith("r"), truncate: flag.startsWith("w"), exclusive: flag.includes("x") };
  using(open("open", path, create, { write: true }), (file) => {
    let at = flag.startsWith("a") ? Number(file.stat().size) : 0;
    for (let done = 0; done < bytes.length; ) {
      const count = attempt("write", undefined, () => file.write(bytes.subarray(done, done + PIECE), at));
      done += Number(count);
      at += Number(count);
    }
  });
}

export function appendFileSync(path, data, options) {
  const given = typeof options === "string" ? { encoding: options } : options;
  writeFileSync(path, data, { flag: "a", ...given });
}

class Stats {
  constructor(found) {
    this.size = Number(found.size);
    this.nlink = Number(found.linkCount);
    this.kind = found.type;
    const time = (stamp) => (stamp ? Number(stamp.seconds) * 1000 + stamp.nanoseconds / 1e6 : 0);
    this.mtimeMs = time(found.dataModificationTimestamp);
    this.atimeMs = time(found.dataAccessTimestamp);
    this.ctimeMs = time(found.statusChangeTimestamp);
    this.mtime = new Date(this.mtimeMs);
    this.atime = new Date(this.atimeMs);
    this.ctime = new Date(this.ctimeMs);
    Object.defineProperty(this, "kind", { enumerable: false });
  }
  isFile() {
    return this.kind === "regular-file";
  }
  isDirectory() {
    return this.kind === "directory";
  }
  isSymbolicLink() {
    return this.kind === "symbolic-link";
  }
  isFIFO() {
    return this.kind === "fifo";
  }
  isSocket() {
    return this.kind === "socket";
  }
  isBlockDevice() {
    return this.kind === "block-device";
  }
  isCharacterDevice() {
    return this.kind === "character-device";
  }
}

class Dirent {
  constructor(name, kind, parentPath) {
    this.name = name;
    this.parentPath = this.path = parentPath;
    Object.defineProperty(this, "kind", { value: kind });
  }
}
for (const name of ["isFile", "isDirectory", "isSymbolicLink", "isFIFO", "isSocket", "isBlockDevice", "isCharacterDevice"]) {
  Dirent.prototype[name] = Stats.prototype[name];
}

function looked(call, path, follow, options) {
  try {
    return attempt(call, path, () => {
      const [folder, rest] = locate(path);
      return new Stats(folder.statAt(follow ? FOLLOW : {}, rest));
    });
  } catch (error) {
    if (options?.throwIfNoEntry === false && error.code === "ENOENT") return undefined;
    throw error;
  }
}

export const statSync = (path, options) => looked("stat", path, true, options);
export const lstatSync = (path, options) => looked("lstat", path, false, options);

export function existsSync(path) {
  try {
    statSync(path);
    return true;
  } catch {
    return false;
  }
}

export function accessSync(path) {
  looked("access", path, true);
}

export function readdirSync(path, options) {
  const given = typeof options === "object" ? options : {};
  const found = entries(path);
  const names = [];
  for (const { name, type } of found) {
    names.push(given?.withFileTypes ? new Dirent(name, type, named(path)) : name);
    if (given?.recursive && type === "directory") {
      for (const below of readdirSync(join(named(path), name), options)) {
        names.push(given.withFileTypes ? below : `${name}/${below}`);
      }
    }
  }
  return names;
}

function entries(path) {
  return using(open("scandir", path, { directory: true }, { read: true }), (folder) =>
    attempt("scandir", path, () =>
      using(folder.readDirectory(), (stream) => {
        const found = [];
        for (let entry = stream.readDirectoryEntry(); entry; entry = stream.readDirectoryEntry()) found.push(entry);
        return found.sort((one, other) => (one.name < other.name ? -1 : 1));
      }),
    ),
  );
}

export function mkdirSync(path, options) {
  const recursive = typeof options === "object" && options?.recursive;
  const make = (one) =>
    attempt("mkdir", one, () => {
      const [folder, rest] = locate(one);
      if (rest === ".") throw "exist";
      folder.createDirectoryAt(rest);
    });
  if (!recursive) return make(path);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return undefined;
  const parent = dirname(resolve(named(path)));
  const first = parent === resolve(named(path)) ? undefined : mkdirSync(parent, options);
  make(path);
  return first ?? resolve(named(path));
}

export function unlinkSync(path) {
  attempt("unlink", path, () => {
    const [folder, rest] = locate(path);
    folder.unlinkFileAt(rest);
  });
}

export function rmdirSync(path, options) {
  if (options?.recursive) return rmSync(path, options);
  attempt("rmdir", path, () => {
    const [folder, rest] = locate(path);
    folder.removeDirectoryAt(rest);
  });
}

export function rmSync(path, options) {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (!found) {
    if (options?.force) return;
    throw failure("no-entry", "rm", named(path));
  }
  if (!found.isDirectory()) return unlinkSync(path);
  if (!options?.recursive) {
    const error = new Error(`Path is a directory: rm returned EISDIR (is a directory) ${named(path)}`);
    error.code = "ERR_FS_EISDIR";
    throw error;
  }
  for (const name of readdirSync(path)) rmSync(join(named(path), name), options);
  rmdirSync(path);
}

export function renameSync(from, to) {
  attempt("rename", from, () => {
    const [source, rest] = locate(from);
    const [target, name] = locate(to);
    source.renameAt(rest, target, name);
  }, to);
}

export function copyFileSync(from, to) {
  writeFileSync(to, readFileSync(from));
}

export function cpSync(from, to, options) {
  if (!statSync(from).isDirectory()) return copyFileSync(from, to);
  if (!options?.recursive) throw failure("is-directory", "cp", named(from));
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(from)) cpSync(join(from, name), join(to, name), options);
}

export function readlinkSync(path) {
  return attempt("readlink", path, () => {
    const [folder, rest] = locate(path);
    return folder.readlinkAt(rest);
  });
}

export function realpathSync(path) {
  statSync(path);
  let whole = resolve(named(path));
  for (let round = 0; round < 40; round++) {
    const link = linkIn(whole);
    if (!link) return whole;
    const [at, target, rest] = link;
    whole = resolve(dirname(at), target, rest);
  }
  throw failure("loop", "realpath", named(path));
}

function linkIn(path) {
  const parts = path.split("/").slice(1);
  for (let count = 1; count <= parts.length; count++) {
    const at = `/${parts.slice(0, count).join("/")}`;
    try {
      if (lstatSync(at).isSymbolicLink()) return [at, readlinkSync(at), parts.slice(count).join("/")];
    } catch {
      continue; // above what the run was given
    }
  }
  return undefined;
}

export function mkdtempSync(prefix) {
  const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const ending = Array.from({ length: 6 }, () => letters[Math.floor(Math.random() * letters.length)]).join("");
  mkdirSync(prefix + ending);
  return prefix + ending;
}

export function readSync(number, target, offset = 0, length = target.length - offset) {
  if (number !== 0) throw failure("bad-descriptor", "read");
  const bytes = readSome(length);
  if (!bytes) return 0;
  target.set(bytes, offset);
  return bytes.length;
}

export function writeSync(number, data) {
  const bytes = toBytes(data);
  if (number !== 1 && number !== 2) throw failure("bad-descriptor", "write");
  write(number, bytes);
  return bytes.length;
}

const SYNC = { readFileSync, writeFileSync, appendFileSync, statSync, lstatSync, accessSync, readdirSync, mkdirSync, unlinkSync, rmdirSync, rmSync, renameSync, copyFileSync, cpSync, readlinkSync, realpathSync, mkdtempSync };
export const constants = { F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4 };
export const promises = { constants };
const callbacks = {};
for (const [name, action] of Object.entries(SYNC)) {
  const short = name.slice(0, -4);
  promises[short] = async (...given) => action(...given);
  callbacks[short] = (...given) => {
    const done = given.pop();
    promises[short](...given).then((value) => done(null, value), done);
  };
}

export default { ...SYNC, ...callbacks, existsSync, readSync, writeSync, constants, promises, Stats, Dirent };
