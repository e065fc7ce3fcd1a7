// node:process.
import control from "skillbelt:host/control@0.1.0";
import ending from "wasi:cli/exit@0.2.0";
import { Buffer, encode, toBytes } from "./bytes.js";
import { call, checked } from "./calls.js";
import { EventEmitter } from "./events.js";
import { resolve } from "./path.js";
import { cwd, env, move } from "./place.js";
import { readAll, readSome, write } from "./streams.js";
import { now, setImmediate } from "./timers.js";

const VERSION = "v22.0.0"; // whose functions these are

class Output {
  constructor(number) {
    this.fd = number;
    this.isTTY = undefined;
    this.writable = true;
  }
  write(data, encoding, done) {
    write(this.fd, toBytes(data, typeof encoding === "string" ? encoding : undefined));
    const after = typeof encoding === "function" ? encoding : done;
    if (after) queueMicrotask(after);
    return true;
  }
  end(data, ...given) {
    if (data !== undefined && typeof data !== "function") this.write(data, ...given);
  }
  on() {
    return this;
  }
  once() {
    return this;
  }
}

class Input extends EventEmitter {
  fd = 0;
  #encoding;
  #flowing = false;
  setEncoding(name) {
    this.#encoding = name;
    return this;
  }
  #made(bytes) {
    const buffer = Buffer.from(bytes);
    return this.#encoding ? buffer.toString(this.#encoding) : buffer;
  }
  on(name, listener) {
    super.on(name, listener);
    if (name === "data" || name === "end" || name === "readable") this.resume();
    return this;
  }
  resume() {
    if (!this.#flowing) {
      this.#flowing = true;
      setImmediate(() => this.#flow());
    }
    return this;
  }
  pause() {
    return this;
  }
  read() {
    const bytes = readAll();
    return bytes.length ? this.#made(bytes) : null;
  }
  // All of it at once: nothing else could be done while waiting, and no character is cut in two.
  #flow() {
    if (this.listenerCount("readable")) {
      this.emit("readable");
    } else {
      const bytes = readAll();
      if (bytes.length) this.emit("data", this.#made(bytes));
    }
    this.emit("end");
    this.emit("close");
  }
  async *[Symbol.asyncIterator]() {
    if (this.#encoding) {
      const bytes = readAll();
      if (bytes.length) yield this.#made(bytes);
      return;
    }
    for (let piece = readSome(); piece; piece = readSome()) yield Buffer.from(piece);
  }
}

class Process extends EventEmitter {
  argv = [];
  argv0 = "node";
  execArgv = [];
  execPath = "node";
  exitCode = undefined;
  env = {};
  pid = 1;
  ppid = 0;
  platform = "linux";
  arch = "wasm32";
  title = "node";
  version = VERSION;
  versions = { node: VERSION.slice(1) };
  release = { name: "node" };
  stdout = new Output(1);
  stderr = new Output(2);
  stdin = new Input();
  arrive(argv) {
    this.env = env();
    this.argv = argv;
  }
  cwd = () => cwd();
  chdir = (folder) => move(resolve(folder));
  exit = (code = this.exitCode) => {
    finish(code ?? 0);
    leave();
  };
  abort = () => {
    control.exit(134);
    leave();
  };
  nextTick = (action, ...given) => {
    checked(action);
    queueMicrotask(() => call(action, undefined, given));
  };
  uptime = () => now() / 1000;
  umask = () => 0o22;
  getuid = () => 0;
  memoryUsage = () => {
    const used = __cqjs.getMemoryUsage();
    return { rss: used.mallocSize, heapTotal: used.mallocSize, heapUsed: used.memoryUsedSize, external: 0, arrayBuffers: 0 };
  };
  hrtime = Object.assign(
    (since) => {
      const nanoseconds = Math.round(now() * 1e6);
      const [seconds, rest] = [Math.floor(nanoseconds / 1e9), nanoseconds % 1e9];
      if (!since) return [seconds, rest];
      const gone = (seconds - since[0]) * 1e9 + rest - since[1];
      return [Math.floor(gone / 1e9), gone % 1e9];
    },
    { bigint: () => BigInt(Math.round(now() * 1e6)) },
  );
  emitWarning = (warning) => write(2, encode(`(node) Warning: ${warning?.message ?? warning}\n`));
}

export const process = new Process();

let finished = false;

// Says the exit status; what listens for the end is told before, once.
export function finish(code) {
  let last = code;
  if (!finished) {
    finished = true;
    process.exitCode = code;
    process.emit("exit", code);
    last = process.exitCode;
  }
  control.exit(Number(last) & 0xff);
}

// Nothing of the program is done after this.
export function leave() {
  ending.exit({ tag: "ok" });
}
export default process;
