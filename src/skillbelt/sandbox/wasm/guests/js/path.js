// node:path, for POSIX alone.
import { cwd } from "./place.js";

export const sep = "/";
export const delimiter = ":";

export function normalize(path) {
  if (!path) return ".";
  const absolute = path.startsWith("/");
  const kept = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") kept.push(part);
    else if (kept.length && kept.at(-1) !== "..") kept.pop();
    else if (!absolute) kept.push("..");
  }
  const joined = kept.join("/") + (path.endsWith("/") && kept.length ? "/" : "");
  return absolute ? `/${joined}` : joined || ".";
}

export function join(...parts) {
  return normalize(parts.filter(Boolean).join("/"));
}

export function resolve(...parts) {
  let path = "";
  for (const part of [cwd(), ...parts]) {
    if (part) path = String(part).startsWith("/") ? String(part) : `${path}/${part}`;
  }
  const found = normalize(path);
  return found.length > 1 && found.endsWith("/") ? found.slice(0, -1) : found;
}

export function isAbsolute(path) {
  return path.startsWith("/");
}

export function dirname(path) {
  const bare = path.replace(/\/+$/, "");
  const at = bare.lastIndexOf("/");
  if (at < 0) return bare || !path ? "." : "/";
  return bare.slice(0, at).replace(/\/+$/, "") || "/";
}

export function basename(path, ending = "") {
  const name = path.replace(/\/+$/, "").split("/").at(-1);
  return ending && name !== ending && name.endsWith(ending) ? name.slice(0, -ending.length) : name;
}

export function extname(path) {
  const name = basename(path);
  const at = name.lastIndexOf(".");
  return at <= 0 || name === ".." ? "" : name.slice(at);
}

export function relative(from, to) {
  const left = resolve(from).split("/").filter(Boolean);
  const right = resolve(to).split("/").filter(Boolean);
  let same = 0;
  while (same < left.length && same < right.length && left[same] === right[same]) same++;
  return [...left.slice(same).map(() => ".."), ...right.slice(same)].join("/");
}

export function parse(path) {
  const base = basename(path);
  const ext = extname(path);
  const root = path.startsWith("/") ? "/" : "";
  const dir = path.includes("/") ? dirname(path) : "";
  return { root, dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
}

export function format({ root = "", dir, base, name = "", ext = "" }) {
  const file = base || name + (ext && !ext.startsWith(".") ? `.${ext}` : ext);
  if (!dir) return root + file;
  return dir === root ? dir + file : `${dir}/${file}`;
}

const path = { sep, delimiter, normalize, join, resolve, isAbsolute, dirname, basename, extname, relative, parse, format, toNamespacedPath: (one) => one };
path.posix = path;
export const posix = path;
export default path;
