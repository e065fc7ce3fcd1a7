// util.inspect and util.format: values as node shows them.

const MOST = 100;
const PLAIN = /^[A-Za-z_$][\w$]*$/;
const ESCAPES = { "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\v": "\\v", "\\": "\\\\" };

export function inspect(value, options = {}) {
  const given = typeof options === "object" && options ? options : {};
  const state = { depth: given.depth === undefined ? 2 : (given.depth ?? Infinity), seen: [], circular: new Map(), compact: given.compact ?? 3, width: given.breakLength ?? 80, hidden: Boolean(given.showHidden), sorted: Boolean(given.sorted) };
  return shown(value, state, 0, false);
}
inspect.custom = Symbol.for("nodejs.util.inspect.custom");

function quoted(text) {
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") && !text.includes("${") ? "`" : "'";
  // eslint-disable-next-line no-control-regex
  const inner = text.replace(/[\x00-\x1f\x7f-\x9f\\]/g, (one) => ESCAPES[one] ?? `\\x${one.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
  return mark + (mark === "'" ? inner.replace(/'/g, "\\'") : inner) + mark;
}

function primitive(value, top, indent, state) {
  if (typeof value === "string") {
    if (top) return value;
    if (value.length > 16 && value.length > state.width - indent - 4 && value.includes("\n")) {
      return value.split(/(?<=\n)/).map(quoted).join(` +\n${" ".repeat(indent + 2)}`);
    }
    return quoted(value);
  }
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value === "bigint") return `${value}n`;
  return String(value);
}

function shown(value, state, indent, typed) {
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return primitive(value, false, indent, state);
  const custom = value[inspect.custom];
  if (typeof custom === "function" && custom !== inspect) {
    const made = custom.call(value, state.depth - state.seen.length, {}, inspect);
    return typeof made === "string" ? made : shown(made, state, indent, typed);
  }
  if (state.seen.includes(value)) {
    if (!state.circular.has(value)) state.circular.set(value, state.circular.size + 1);
    return `[Circular *${state.circular.get(value)}]`;
  }
  return composite(value, state, indent);
}

function nameOf(value) {
  for (let at = value; at; at = Object.getPrototypeOf(at)) {
    const own = Object.getOwnPropertyDescriptor(at, "constructor");
    if (own && typeof own.value === "function" && own.value.name && isInstance(value, own.value)) return own.value.name;
  }
  return null;
}

function isInstance(value, kind) {
  try {
    return value instanceof kind;
  } catch {
    return false;
  }
}

function prefix(value, fallback, size = "") {
  const name = nameOf(value);
  const tag = value[Symbol.toStringTag];
  const extra = typeof tag === "string" && tag && tag !== name ? ` [${tag}]` : "";
  if (name === null) return `[${fallback}${size}: null prototype]${extra} `;
  return `${name}${size}${extra} `;
}

function keysOf(value, state) {
  const names = Object.keys(value);
  const symbols = Object.getOwnPropertySymbols(value).filter((one) => Object.prototype.propertyIsEnumerable.call(value, one));
  if (state.sorted) names.sort();
  return [...names, ...symbols];
}

function composite(value, state, indent) {
  let keys = keysOf(value, state);
  let braces = ["{", "}"];
  let base = "";
  let items = null;
  let list = false;
  if (Array.isArray(value)) {
    keys = keys.filter((key) => typeof key === "symbol" || !isIndex(key, value.length));
    const name = nameOf(value);
    braces = [name === "Array" ? "[" : `${prefix(value, "Array", `(${value.length})`)}[`, "]"];
    if (!value.length && !keys.length) return `${braces[0]}]`;
    items = arrayItems;
    list = true;
  } else if (value instanceof Set) {
    braces = [`${prefix(value, "Set", `(${value.size})`)}{`, "}"];
    if (!value.size && !keys.length) return `${braces[0]}}`;
    items = (set, inner, at) => [...set].map((one) => shown(one, inner, at + 2));
  } else if (value instanceof Map) {
    braces = [`${prefix(value, "Map", `(${value.size})`)}{`, "}"];
    if (!value.size && !keys.length) return `${braces[0]}}`;
    items = (map, inner, at) => [...map].map(([key, one]) => `${shown(key, inner, at + 2)} => ${shown(one, inner, at + 2)}`);
  } else if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    if (nameOf(value) === "Buffer") return bufferText(value);
    keys = keys.filter((key) => typeof key === "symbol" || !isIndex(key, value.length));
    braces = [`${prefix(value, "TypedArray", `(${value.length})`)}[`, "]"];
    if (!value.length && !keys.length) return `${braces[0]}]`;
    items = arrayItems;
    list = true;
  } else if (typeof value === "function") {
    base = functionText(value);
    if (!keys.length) return base;
  } else if (value instanceof RegExp) {
    base = String(value);
    if (!keys.length) return base;
  } else if (value instanceof Date) {
    base = Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
    if (!keys.length) return base;
  } else if (value instanceof Error) {
    base = errorText(value, keys, indent);
    if ("cause" in value && Object.hasOwn(value, "cause") && !keys.includes("cause")) keys.push("cause");
    if (value instanceof AggregateError && Object.hasOwn(value, "errors") && !keys.includes("errors")) keys.push("errors");
    keys = keys.filter((key) => key !== "stack" && key !== "message");
    if (!keys.length) return base;
  } else if (value instanceof Number || value instanceof String || value instanceof Boolean) {
    base = `[${nameOf(value)}: ${primitive(value.valueOf(), false, indent, state)}]`;
    keys = keys.filter((key) => !(value instanceof String) || !isIndex(key, value.length));
    if (!keys.length) return base;
  } else if (value instanceof Promise) {
    braces = ["Promise {", "}"];
    items = () => ["<pending>"];
  } else if (value instanceof WeakSet || value instanceof WeakMap) {
    return `${prefix(value, "WeakSet")}{ <items unknown> }`;
  } else if (Object.prototype.toString.call(value) === "[object Arguments]" && typeof value.length === "number") {
    braces = ["[Arguments] [", "]"];
    keys = keys.filter((key) => typeof key === "symbol" || !isIndex(key, value.length));
    items = (given, inner, at) => arrayItems(Array.from(given), inner, at);
    list = true;
  } else {
    const name = nameOf(value);
    const tag = value[Symbol.toStringTag];
    if (name !== "Object" || (typeof tag === "string" && tag)) braces[0] = `${prefix(value, "Object")}{`;
    if (!keys.length) return `${braces[0]}}`;
  }
  if (state.seen.length > state.depth) return `[${Array.isArray(value) ? "Array" : (nameOf(value) ?? "Object: null prototype")}]`;
  const level = state.seen.length;
  state.seen.push(value);
  state.level = level;
  const output = items ? items(value, state, indent) : [];
  for (const key of keys) output.push(property(value, key, state, indent, list));
  if (list && state.hidden) output.push(`[length]: ${value.length}`);
  state.seen.pop();
  const number = state.circular.get(value);
  if (number !== undefined) {
    if (base) base = `<ref *${number}> ${base}`;
    else braces[0] = `<ref *${number}> ${braces[0]}`;
  }
  return reduced(output, base, braces, state, indent, list, value, level);
}

function isIndex(key, length) {
  return /^(0|[1-9]\d*)$/.test(key) && Number(key) < length;
}

function arrayItems(list, state, indent) {
  const output = [];
  for (let at = 0; at < list.length && output.length < MOST; at++) {
    if (at in list) {
      output.push(shown(list[at], state, indent + 2));
      continue;
    }
    let end = at;
    while (end < list.length && !(end in list)) end++;
    output.push(`<${end - at} empty item${end - at > 1 ? "s" : ""}>`);
    at = end - 1;
  }
  const rest = list.length - MOST;
  if (rest > 0) output.push(`... ${rest} more item${rest > 1 ? "s" : ""}`);
  return output;
}

function bufferText(bytes) {
  const hex = Array.from(bytes.subarray(0, 50), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const rest = bytes.length - 50;
  return `<Buffer${hex && ` ${hex}`}${rest > 0 ? ` ... ${rest} more byte${rest > 1 ? "s" : ""}` : ""}>`;
}

function functionText(value) {
  const source = Function.prototype.toString.call(value);
  if (source.startsWith("class") && source.endsWith("}")) {
    const parent = Object.getPrototypeOf(value);
    const above = parent?.name ? ` extends ${parent.name}` : "";
    return `[class ${value.name || "(anonymous)"}${above}]`;
  }
  const kind = nameOf(value) ?? "Function";
  return `[${kind}${value.name ? `: ${value.name}` : " (anonymous)"}]`;
}

export function errorHead(error) {
  const name = error.name === undefined ? "Error" : String(error.name);
  const message = error.message === undefined ? "" : String(error.message);
  return message ? `${name}: ${message}` : name;
}

function errorText(error, keys, indent) {
  const stack = typeof error.stack === "string" && error.stack ? error.stack.replace(/\n$/, "") : "";
  const head = errorHead(error);
  if (!stack) return `[${head}]`;
  const text = /^\s+at /.test(stack) ? `${head}\n${stack}` : stack;
  return indent ? text.replace(/\n/g, `\n${" ".repeat(indent)}`) : text;
}

function property(value, key, state, indent, list) {
  const found = Object.getOwnPropertyDescriptor(value, key) ?? { value: value[key], enumerable: true };
  let text;
  if (found.get) text = found.set ? "[Getter/Setter]" : "[Getter]";
  else if (found.set) text = "[Setter]";
  else text = shown(found.value, state, indent + 2);
  if (typeof key === "symbol") return `[${String(key)}]: ${text}`;
  const name = found.enumerable === false ? `[${key}]` : PLAIN.test(key) ? key : quoted(key);
  return `${name}: ${text}`;
}

function reduced(output, base, braces, state, indent, list, value, level) {
  const entries = output.length;
  if (list && entries > 6) output = grouped(output, state, value, indent);
  const lead = base ? `${base} ` : "";
  // Objects with few levels inside stand on one line when they fit.
  if (state.level - level < state.compact && entries === output.length) {
    const start = output.length + indent + braces[0].length + base.length + 10;
    const total = output.reduce((sum, one) => sum + one.length, output.length + start);
    const line = output.join(", ");
    if (total <= state.width && !base.includes("\n") && !line.includes("\n")) return `${lead}${braces[0]} ${line} ${braces[1]}`;
  }
  const gap = `\n${" ".repeat(indent)}`;
  return `${lead}${braces[0]}${gap}  ${output.join(`,${gap}  `)}${gap}${braces[1]}`;
}

// Long lists of short things in columns.
function grouped(output, state, value, indent) {
  let total = 0;
  let longest = 0;
  let count = output.length;
  if (value.length > MOST) count--;
  const lengths = [];
  for (let at = 0; at < count; at++) {
    lengths[at] = output[at].length;
    total += lengths[at] + 2;
    longest = Math.max(longest, lengths[at]);
  }
  const actual = longest + 2;
  if (actual * 3 + indent >= state.width || !(total / actual > 5 || longest <= 6)) return output;
  const biased = Math.max(actual - 3 - Math.sqrt(actual - total / output.length), 1);
  const columns = Math.min(Math.round(Math.sqrt(2.5 * biased * count) / biased), Math.floor((state.width - indent) / actual), state.compact * 4, 15);
  if (columns <= 1) return output;
  const rows = [];
  const widths = [];
  for (let at = 0; at < columns; at++) {
    let width = 0;
    for (let one = at; one < count; one += columns) width = Math.max(width, lengths[one]);
    widths.push(width + 2);
  }
  const right = Array.from(value).every((one) => typeof one === "number" || typeof one === "bigint");
  for (let at = 0; at < count; at += columns) {
    const end = Math.min(at + columns, count);
    let row = "";
    let one = at;
    for (; one < end - 1; one++) {
      const cell = `${output[one]}, `;
      row += right ? cell.padStart(widths[one - at]) : cell.padEnd(widths[one - at]);
    }
    row += right ? output[one].padStart(widths[one - at] - 2) : output[one];
    rows.push(row);
  }
  if (value.length > MOST) rows.push(output[count]);
  return rows;
}

export function format(...given) {
  if (typeof given[0] !== "string") return given.map((one) => textOf(one)).join(" ");
  const [pattern, ...rest] = given;
  let used = 0;
  const text = given.length === 1 ? pattern : pattern.replace(/%[sdifjoOc%]/g, (mark) => {
    if (mark === "%%") return "%";
    if (used >= rest.length) return mark;
    return placed(mark, rest[used++]);
  });
  return [text, ...rest.slice(used).map((one) => textOf(one))].join(" ");
}

function textOf(value) {
  return typeof value === "string" ? value : inspect(value);
}

function placed(mark, value) {
  switch (mark) {
    case "%s":
      if (typeof value === "string") return value;
      if (typeof value === "object" && value !== null && !(value instanceof Error)) return inspect(value, { depth: 0 });
      return typeof value === "bigint" ? `${value}n` : Object.is(value, -0) ? "-0" : String(value);
    case "%d":
      return typeof value === "bigint" ? `${value}n` : typeof value === "object" ? "NaN" : inspect(Number(value));
    case "%i":
      return typeof value === "object" ? "NaN" : inspect(parseInt(value, 10));
    case "%f":
      return inspect(parseFloat(value));
    case "%j":
      return JSON.stringify(value);
    case "%c":
      return "";
    default:
      return inspect(value, mark === "%o" ? { depth: 4, showHidden: true } : {});
  }
}
