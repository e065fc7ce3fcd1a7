// What a script finds without importing it.
import random from "wasi:random/random@0.2.0";
import { Buffer, TextDecoder, TextEncoder } from "./bytes.js";
import { console } from "./console.js";
import { process } from "./process.js";
import * as timers from "./timers.js";
import { URL, URLSearchParams } from "./url.js";
import { Headers, Request, Response, fetch } from "./web.js";

let pool = new Uint8Array(0);
let taken = 0;

function randomBytes(count) {
  if (count > 1024) return new Uint8Array(random.getRandomBytes(count));
  if (taken + count > pool.length) {
    pool = new Uint8Array(random.getRandomBytes(4096));
    taken = 0;
  }
  taken += count;
  return pool.slice(taken - count, taken);
}

// The engine's own generator was set going when the component was built.
function fraction() {
  const [high, low] = new Uint32Array(randomBytes(8).buffer);
  return ((high >>> 5) * 67108864 + (low >>> 6)) / 9007199254740992;
}

export const crypto = {
  getRandomValues(target) {
    new Uint8Array(target.buffer, target.byteOffset, target.byteLength).set(randomBytes(target.byteLength));
    return target;
  },
  randomUUID() {
    const bytes = randomBytes(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return Buffer.from(bytes).toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
  randomBytes: (count) => Buffer.from(randomBytes(count)),
  randomInt: (low, high) => (high === undefined ? Math.floor(fraction() * low) : low + Math.floor(fraction() * (high - low))),
};

export function structuredClone(value, seen = new Map()) {
  if (value === null || typeof value !== "object") {
    if (typeof value === "function" || typeof value === "symbol") throw new DOMException(`${String(value)} could not be cloned.`, "DataCloneError");
    return value;
  }
  if (seen.has(value)) return seen.get(value);
  const keep = (made) => (seen.set(value, made), made);
  if (value instanceof Date) return keep(new Date(value));
  if (value instanceof RegExp) return keep(new RegExp(value));
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return keep(value.slice());
  if (value instanceof Map) {
    const made = keep(new Map());
    for (const [key, one] of value) made.set(structuredClone(key, seen), structuredClone(one, seen));
    return made;
  }
  if (value instanceof Set) {
    const made = keep(new Set());
    for (const one of value) made.add(structuredClone(one, seen));
    return made;
  }
  const made = keep(Array.isArray(value) ? [] : value instanceof Error ? new globalThis[value.name](value.message) : {});
  for (const key of Object.keys(value)) made[key] = structuredClone(value[key], seen);
  return made;
}

export function install(more) {
  const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = timers;
  const performance = { now: timers.now, get timeOrigin() { return Date.now() - timers.now(); }, mark() {}, measure() {}, toJSON: () => ({}) };
  const given = { Buffer, Headers, Request, Response, TextDecoder, TextEncoder, URL, URLSearchParams, clearImmediate, clearInterval, clearTimeout, console, crypto, fetch, performance, process, setImmediate, setInterval, setTimeout, structuredClone, ...more };
  for (const [name, value] of Object.entries(given)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
  globalThis.global = globalThis;
  Math.random = fraction;
}
