// Text as bytes and back, Buffer included. The engine has neither TextEncoder nor Buffer.

const ASCII = /^[\x00-\x7f]*$/;
const PIECE = 8192;

export function encode(text) {
  const value = String(text);
  const plain = ASCII.test(value) ? value : unescape(encodeURIComponent(value.toWellFormed()));
  return fromBinary(plain);
}

function fromBinary(text) {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

function toBinary(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) {
    text += String.fromCharCode.apply(null, bytes.subarray(at, at + PIECE));
  }
  return text;
}

export function decode(bytes, fatal = false) {
  const text = toBinary(bytes);
  if (ASCII.test(text)) return text;
  try {
    return decodeURIComponent(escape(text));
  } catch {
    if (fatal) throw new TypeError("The encoded data was not valid for encoding utf-8");
    return mended(bytes);
  }
}

// What is no UTF-8 becomes the replacement character, one for each longest wrong start.
function mended(bytes) {
  let text = "";
  let at = 0;
  while (at < bytes.length) {
    const [code, size] = next(bytes, at);
    text += code < 0 ? "\ufffd" : String.fromCodePoint(code);
    at += size;
  }
  return text;
}

function next(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, 1];
  const more = first >= 0xf0 && first < 0xf5 ? 3 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xc2 && first < 0xe0 ? 1 : 0;
  if (!more) return [-1, 1];
  let [low, high] = [0x80, 0xbf];
  if (first === 0xe0) low = 0xa0;
  else if (first === 0xed) high = 0x9f;
  else if (first === 0xf0) low = 0x90;
  else if (first === 0xf4) high = 0x8f;
  let code = first & (0x3f >> more);
  for (let step = 1; step <= more; step++) {
    const byte = bytes[at + step];
    if (byte === undefined || byte < low || byte > high) return [-1, step];
    code = (code << 6) | (byte & 0x3f);
    [low, high] = [0x80, 0xbf];
  }
  return [code, more + 1];
}

function view(data) {
  if (data === undefined) return new Uint8Array(0);
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new Uint8Array(data);
}

export class TextEncoder {
  get encoding() {
    return "utf-8";
  }
  encode(text = "") {
    return encode(text);
  }
}

export class TextDecoder {
  #fatal;
  #keepMark;
  #rest = new Uint8Array(0);
  constructor(label = "utf-8", options = {}) {
    const name = String(label).trim().toLowerCase();
    if (!["utf-8", "utf8", "latin1", "iso-8859-1", "ascii", "utf-16le"].includes(name)) {
      throw new RangeError(`The "${label}" encoding is not supported`);
    }
    this.encoding = name === "utf8" ? "utf-8" : name;
    this.#fatal = Boolean(options.fatal);
    this.#keepMark = Boolean(options.ignoreBOM);
  }
  decode(data, options = {}) {
    let bytes = view(data);
    if (this.encoding === "utf-16le") return Buffer.from(bytes).toString("utf16le");
    if (this.encoding !== "utf-8") return toBinary(bytes);
    if (this.#rest.length) bytes = Buffer.concat([this.#rest, bytes]);
    const keep = options.stream ? unfinished(bytes) : 0;
    this.#rest = bytes.slice(bytes.length - keep);
    const text = decode(bytes.subarray(0, bytes.length - keep), this.#fatal);
    return !this.#keepMark && text.startsWith("\ufeff") ? text.slice(1) : text;
  }
}

// How many bytes at the end may be the start of a character that goes on.
function unfinished(bytes) {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back];
    if (byte >= 0xc0) return byte >= 0xf0 ? (back < 4 ? back : 0) : byte >= 0xe0 ? (back < 3 ? back : 0) : back < 2 ? back : 0;
    if (byte < 0x80) return 0;
  }
  return 0;
}

function encoded(text, encoding) {
  switch (String(encoding ?? "utf8").toLowerCase()) {
    case "utf8":
    case "utf-8":
      return encode(text);
    case "hex":
      return new Uint8Array((text.match(/^(?:[\da-f]{2})*/i)[0].match(/../g) ?? []).map((pair) => parseInt(pair, 16)));
    case "base64":
    case "base64url":
      return fromBinary(atob(text.replace(/-/g, "+").replace(/_/g, "/").replace(/[^A-Za-z\d+/]/g, "")));
    case "latin1":
    case "binary":
    case "ascii":
      return fromBinary(text);
    case "utf16le":
    case "ucs2":
      return new Uint8Array(Uint16Array.from(text, (unit) => unit.charCodeAt(0)).buffer);
    default:
      throw new TypeError(`Unknown encoding: ${encoding}`);
  }
}

function decoded(bytes, encoding) {
  switch (String(encoding ?? "utf8").toLowerCase()) {
    case "utf8":
    case "utf-8":
      return decode(bytes);
    case "hex":
      return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    case "base64":
      return btoa(toBinary(bytes));
    case "base64url":
      return btoa(toBinary(bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
    case "latin1":
    case "binary":
      return toBinary(bytes);
    case "ascii":
      return toBinary(bytes.map((byte) => byte & 0x7f));
    case "utf16le":
    case "ucs2":
      return String.fromCharCode(...new Uint16Array(bytes.slice(0, bytes.length & ~1).buffer));
    default:
      throw new TypeError(`Unknown encoding: ${encoding}`);
  }
}

export class Buffer extends Uint8Array {
  static from(data, encoding, length) {
    if (typeof data === "string") return as(encoded(data, encoding));
    if (data instanceof ArrayBuffer) return as(new Uint8Array(data, encoding, length));
    if (data?.type === "Buffer" && Array.isArray(data.data)) return as(new Uint8Array(data.data));
    return as(new Uint8Array(data));
  }
  static alloc(size, fill) {
    const made = new Buffer(size);
    return fill === undefined ? made : made.fill(typeof fill === "string" ? fill.charCodeAt(0) : fill);
  }
  static allocUnsafe(size) {
    return new Buffer(size);
  }
  static concat(list, total) {
    const made = new Buffer(total ?? list.reduce((sum, one) => sum + one.length, 0));
    let at = 0;
    for (const one of list) {
      made.set(one.subarray(0, Math.max(0, made.length - at)), at);
      at += one.length;
    }
    return made;
  }
  static byteLength(data, encoding) {
    return typeof data === "string" ? encoded(data, encoding).length : data.byteLength;
  }
  static isBuffer(value) {
    return value instanceof Buffer;
  }
  static isEncoding(name) {
    return /^(utf-?8|hex|base64(url)?|latin1|binary|ascii|utf16le|ucs2)$/i.test(name);
  }
  static compare(one, other) {
    return one.compare(other);
  }
  toString(encoding, start = 0, end = this.length) {
    return decoded(this.subarray(start, end), encoding);
  }
  toJSON() {
    return { type: "Buffer", data: Array.from(this) };
  }
  slice(start, end) {
    return this.subarray(start, end);
  }
  equals(other) {
    return this.compare(other) === 0;
  }
  compare(other) {
    const shared = Math.min(this.length, other.length);
    for (let at = 0; at < shared; at++) if (this[at] !== other[at]) return this[at] < other[at] ? -1 : 1;
    return Math.sign(this.length - other.length);
  }
  write(text, at = 0, length, encoding) {
    const bytes = encoded(text, typeof length === "string" ? length : encoding);
    const most = Math.min(bytes.length, typeof length === "number" ? length : Infinity, this.length - at);
    this.set(bytes.subarray(0, most), at);
    return most;
  }
  indexOf(value, from = 0) {
    if (typeof value === "number") return super.indexOf(value, from);
    const wanted = toBinary(typeof value === "string" ? encode(value) : value);
    return toBinary(this).indexOf(wanted, from);
  }
  includes(value, from) {
    return this.indexOf(value, from) >= 0;
  }
}

for (const [name, size] of [["UInt8", 1], ["Int8", 1], ["UInt16", 2], ["Int16", 2], ["UInt32", 4], ["Int32", 4], ["Float", 4], ["Double", 8]]) {
  const kind = name === "Float" ? "Float32" : name === "Double" ? "Float64" : name.replace("UI", "Ui");
  for (const [ending, little] of size === 1 ? [["", true]] : [["LE", true], ["BE", false]]) {
    Buffer.prototype[`read${name}${ending}`] = function (at = 0) {
      return new DataView(this.buffer, this.byteOffset, this.length)[`get${kind}`](at, little);
    };
    Buffer.prototype[`write${name}${ending}`] = function (value, at = 0) {
      new DataView(this.buffer, this.byteOffset, this.length)[`set${kind}`](at, value, little);
      return at + size;
    };
  }
}

function as(bytes) {
  return Object.setPrototypeOf(bytes, Buffer.prototype);
}

export function toBytes(data, encoding) {
  if (typeof data === "string") return encoded(data, encoding);
  return ArrayBuffer.isView(data) || data instanceof ArrayBuffer ? view(data) : encode(String(data));
}
