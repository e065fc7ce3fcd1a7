// fetch and what belongs to it, through the engine's door.
import door from "skillbelt:host/http@0.1.0";
import { Buffer, decode, toBytes } from "./bytes.js";
import { URL, URLSearchParams } from "./url.js";

const MOST_REDIRECTS = 20;
const TEXTS = { 200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 301: "Moved Permanently", 302: "Found", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable" };

export class Headers {
  #map = new Map();
  constructor(given = {}) {
    const pairs = typeof given[Symbol.iterator] === "function" ? given : Object.entries(given);
    for (const [name, value] of pairs) this.append(name, value);
  }
  append(name, value) {
    const key = String(name).toLowerCase();
    this.#map.set(key, this.#map.has(key) ? `${this.#map.get(key)}, ${value}` : String(value));
  }
  set(name, value) {
    this.#map.set(String(name).toLowerCase(), String(value));
  }
  get(name) {
    return this.#map.get(String(name).toLowerCase()) ?? null;
  }
  has(name) {
    return this.#map.has(String(name).toLowerCase());
  }
  delete(name) {
    this.#map.delete(String(name).toLowerCase());
  }
  forEach(action) {
    for (const [name, value] of this) action(value, name, this);
  }
  *[Symbol.iterator]() {
    yield* [...this.#map].sort(([one], [other]) => (one < other ? -1 : 1));
  }
  entries() {
    return this[Symbol.iterator]();
  }
  *keys() {
    for (const [name] of this) yield name;
  }
  *values() {
    for (const [, value] of this) yield value;
  }
}

export class Response {
  #bytes;
  constructor(body = null, options = {}) {
    this.#bytes = body === null ? new Uint8Array(0) : toBytes(body);
    this.status = options.status ?? 200;
    this.statusText = options.statusText ?? "";
    this.headers = new Headers(options.headers);
    this.url = options.url ?? "";
    this.redirected = Boolean(options.redirected);
    this.bodyUsed = false;
  }
  get ok() {
    return this.status >= 200 && this.status < 300;
  }
  #taken() {
    if (this.bodyUsed) throw new TypeError("Body is unusable: Body has already been read");
    this.bodyUsed = true;
    return this.#bytes;
  }
  async bytes() {
    return this.#taken();
  }
  async text() {
    return decode(this.#taken());
  }
  async json() {
    return JSON.parse(decode(this.#taken()));
  }
  async arrayBuffer() {
    return this.#taken().slice().buffer;
  }
}

export class Request {
  constructor(target, options = {}) {
    const from = target instanceof Request ? target : {};
    this.url = new URL(from.url ?? target).href;
    this.method = (options.method ?? from.method ?? "GET").toUpperCase();
    this.headers = new Headers(options.headers ?? from.headers);
    this.body = options.body ?? from.body ?? null;
    this.redirect = options.redirect ?? from.redirect ?? "follow";
  }
}

function once(request, url) {
  const body = request.body === null ? Buffer.alloc(0) : toBytes(request.body);
  try {
    return door.fetch({ method: request.method, url, headers: [...request.headers], body });
  } catch (error) {
    const reason = error?.payload ?? error?.val ?? error;
    throw new TypeError("fetch failed", { cause: new Error(String(reason?.message ?? reason)) });
  }
}

export async function fetch(target, options) {
  const request = new Request(target, options);
  if (request.body instanceof URLSearchParams && !request.headers.has("content-type")) {
    request.headers.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
    request.body = String(request.body);
  } else if (typeof request.body === "string" && !request.headers.has("content-type")) {
    request.headers.set("content-type", "text/plain;charset=UTF-8");
  }
  let url = request.url;
  for (let count = 0; ; count++) {
    const answer = once(request, url);
    const headers = new Headers(answer.headers);
    const next = [301, 302, 303, 307, 308].includes(answer.status) && headers.get("location");
    if (!next || request.redirect === "manual") {
      return new Response(answer.body instanceof Uint8Array ? answer.body : new Uint8Array(answer.body), { status: answer.status, statusText: TEXTS[answer.status], headers, url, redirected: count > 0 });
    }
    if (request.redirect === "error" || count >= MOST_REDIRECTS) throw new TypeError("fetch failed", { cause: new Error("redirect count exceeded") });
    const there = new URL(next, url);
    if (there.origin !== new URL(url).origin) for (const name of ["authorization", "cookie"]) request.headers.delete(name);
    url = there.href;
    if (answer.status === 303 || (answer.status < 303 && request.method === "POST")) {
      request.method = "GET";
      request.body = null;
      for (const name of ["content-type", "content-length"]) request.headers.delete(name);
    }
  }
}
