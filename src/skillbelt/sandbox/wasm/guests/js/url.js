// URL and URLSearchParams, for the schemes that scripts meet.

const PORTS = { "http:": "80", "https:": "443", "ftp:": "21", "ws:": "80", "wss:": "443" };

function coded(text) {
  return encodeURIComponent(text).replace(/%20/g, "+").replace(/[!'()~]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}

function plain(text) {
  try {
    return decodeURIComponent(text.replace(/\+/g, " "));
  } catch {
    return text;
  }
}

export class URLSearchParams {
  #list = [];
  #changed;
  constructor(given = "", changed = () => {}) {
    this.#changed = changed;
    if (typeof given === "string") {
      for (const pair of given.replace(/^\?/, "").split("&").filter(Boolean)) {
        const at = pair.indexOf("=");
        this.#list.push(at < 0 ? [plain(pair), ""] : [plain(pair.slice(0, at)), plain(pair.slice(at + 1))]);
      }
    } else {
      const pairs = typeof given[Symbol.iterator] === "function" ? given : Object.entries(given);
      for (const [name, value] of pairs) this.#list.push([String(name), String(value)]);
    }
  }
  append(name, value) {
    this.#list.push([String(name), String(value)]);
    this.#changed();
  }
  delete(name) {
    this.#list = this.#list.filter(([one]) => one !== name);
    this.#changed();
  }
  get(name) {
    return this.#list.find(([one]) => one === name)?.[1] ?? null;
  }
  getAll(name) {
    return this.#list.filter(([one]) => one === name).map(([, value]) => value);
  }
  has(name) {
    return this.#list.some(([one]) => one === name);
  }
  set(name, value) {
    const at = this.#list.findIndex(([one]) => one === name);
    if (at < 0) this.#list.push([String(name), String(value)]);
    else {
      this.#list[at][1] = String(value);
      this.#list = this.#list.filter(([one], place) => one !== name || place === at);
    }
    this.#changed();
  }
  sort() {
    this.#list.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
    this.#changed();
  }
  get size() {
    return this.#list.length;
  }
  forEach(action) {
    for (const [name, value] of this.#list) action(value, name, this);
  }
  *keys() {
    for (const [name] of this.#list) yield name;
  }
  *values() {
    for (const [, value] of this.#list) yield value;
  }
  *entries() {
    yield* this.#list.map((pair) => [...pair]);
  }
  [Symbol.iterator]() {
    return this.entries();
  }
  toString() {
    return this.#list.map(([name, value]) => `${coded(name)}=${coded(value)}`).join("&");
  }
}

const FORM = /^([a-z][a-z\d+.-]*:)(?:\/\/(?:([^/?#:@]*)(?::([^/?#@]*))?@)?(\[[^\]]*\]|[^/?#:]*)(?::(\d*))?)?([^?#]*)(\?[^#]*)?(#.*)?$/i;

export class URL {
  constructor(given, base) {
    let text = String(given).trim();
    if (!/^[a-z][a-z\d+.-]*:/i.test(text)) {
      if (base === undefined) throw invalid(given);
      text = joined(text, new URL(base));
    }
    const found = FORM.exec(text);
    if (!found) throw invalid(given);
    const [, protocol, username = "", password = "", hostname = "", port = "", pathname, search = "", hash = ""] = found;
    this.protocol = protocol.toLowerCase();
    const special = this.protocol in PORTS;
    if (special && !hostname) throw invalid(given);
    Object.assign(this, { username, password, hostname: hostname.toLowerCase(), hash: hash === "#" ? "" : hash });
    this.port = port === PORTS[this.protocol] ? "" : port;
    this.pathname = special || this.protocol === "file:" ? flat(pathname || "/") : pathname;
    this.searchParams = new URLSearchParams(search, () => {
      const made = this.searchParams.toString();
      this.search = made ? `?${made}` : "";
    });
    this.search = search === "?" ? "" : search.replace(/[ "<>]/g, encodeURIComponent);
    Object.defineProperty(this, "searchParams", { enumerable: false });
  }
  static canParse(given, base) {
    try {
      return Boolean(new URL(given, base));
    } catch {
      return false;
    }
  }
  get host() {
    return this.hostname + (this.port && `:${this.port}`);
  }
  get origin() {
    return this.protocol in PORTS ? `${this.protocol}//${this.host}` : "null";
  }
  get href() {
    const user = this.username ? `${this.username}${this.password && `:${this.password}`}@` : "";
    const slashes = this.hostname || this.protocol === "file:" ? "//" : "";
    return `${this.protocol}${slashes}${user}${this.host}${this.pathname}${this.search}${this.hash}`;
  }
  toString() {
    return this.href;
  }
  toJSON() {
    return this.href;
  }
}

function invalid(given) {
  const error = new TypeError("Invalid URL");
  return Object.assign(error, { code: "ERR_INVALID_URL", input: String(given) });
}

function joined(text, base) {
  if (text.startsWith("//")) return base.protocol + text;
  const root = `${base.protocol}//${base.username && `${base.username}@`}${base.host}`;
  if (text.startsWith("/")) return root + text;
  if (text.startsWith("?")) return root + base.pathname + text;
  if (text.startsWith("#")) return root + base.pathname + base.search + text;
  return root + base.pathname.replace(/[^/]*$/, "") + text;
}

function flat(path) {
  const kept = [];
  const parts = path.split("/").slice(1);
  parts.forEach((part, at) => {
    if (part === "..") kept.pop();
    if (part !== ".." && part !== ".") kept.push(part);
    else if (at === parts.length - 1) kept.push("");
  });
  return `/${kept.join("/")}`.replace(/[ "<>`{}]/g, encodeURIComponent);
}

export const fileURLToPath = (url) => decodeURIComponent(new URL(url).pathname);
export const pathToFileURL = (path) => new URL(`file://${path.split("/").map(encodeURIComponent).join("/")}`);
