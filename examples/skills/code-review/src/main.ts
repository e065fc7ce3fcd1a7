import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { languageOf } from "./parse";
import { ORDER, RULES, review, sorted } from "./review";
import type { File, Finding, Rule, Severity } from "./types";

const MOST_FILES = 2000;
const MOST_CHARACTERS = 1_000_000;
const LEFT_OUT = new Set(["node_modules", "dist", "build", "vendor", "target", "__pycache__", "site-packages", "third_party"]);
const MINIFIED = /\.min\.[a-z]+$|(?:^|\/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml)$/;

interface Input {
  files?: unknown;
  path?: unknown;
  code?: unknown;
  file?: unknown;
  rules?: unknown;
  ignore?: unknown;
  min_severity?: unknown;
  max_findings?: unknown;
}

class WrongInput extends Error {}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

interface Given {
  files: File[];
  skipped: string[];
}

function given(input: Input): Given {
  const name = input.file ?? input.path;
  if (input.code !== undefined) return { files: [file({ path: name, content: input.code }, "code needs a file, whose ending tells the language")], skipped: [] };
  if (Array.isArray(input.files)) return joined(input.files.map((one, at) => (isText(one) ? collected(one) : { files: [file(one, `files[${at}] needs a path and a content`)], skipped: [] })));
  if (!isText(name)) throw new WrongInput('give {"code": ..., "file": ...}, {"files": [{"path": ..., "content": ...}]} or {"path": ...}');
  return collected(name);
}

function file(value: unknown, fault: string): File {
  const one = value as File;
  if (!one || !isText(one.path) || !isText(one.content)) throw new WrongInput(`${fault}, both text`);
  return { path: one.path, content: one.content };
}

function joined(parts: Given[]): Given {
  return { files: parts.flatMap((one) => one.files), skipped: parts.flatMap((one) => one.skipped) };
}

function collected(path: string): Given {
  const files: File[] = [];
  const skipped: string[] = [];
  const take = (one: string, named: boolean): void => {
    if (files.length >= MOST_FILES || (!named && (!languageOf(one) || MINIFIED.test(one)))) return;
    if (statSync(one).size > MOST_CHARACTERS) return void skipped.push(one);
    files.push({ path: one, content: readFileSync(one, "utf8") });
  };
  const walk = (folder: string): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const below = folder === "." ? entry.name : join(folder, entry.name);
      if (entry.isDirectory() && !entry.name.startsWith(".") && !LEFT_OUT.has(entry.name)) walk(below);
      else if (entry.isFile()) take(below, false);
    }
  };
  try {
    if (statSync(path).isDirectory()) walk(path);
    else take(path, true);
  } catch (error) {
    throw new WrongInput(error instanceof Error ? error.message : String(error));
  }
  return { files, skipped };
}

function wanted(input: Input): Rule[] {
  const names = (value: unknown, key: string): string[] => {
    if (value === undefined) return [];
    if (!Array.isArray(value) || !value.every(isText)) throw new WrongInput(`${key} must be a list of names`);
    const unknown = value.find((name) => !RULES.some((rule) => rule.name === name));
    if (unknown !== undefined) throw new WrongInput(`no rule is named ${unknown}; there are: ${RULES.map((rule) => rule.name).join(", ")}`);
    return value;
  };
  const only = names(input.rules, "rules");
  const ignored = names(input.ignore, "ignore");
  return RULES.filter((rule) => (!only.length || only.includes(rule.name)) && !ignored.includes(rule.name));
}

function kept(input: Input, found: Finding[]): Finding[] {
  const least = input.min_severity ?? "low";
  if (!isText(least) || !ORDER.includes(least as Severity)) throw new WrongInput(`min_severity can be: ${ORDER.join(", ")}`);
  return found.filter((one) => ORDER.indexOf(one.severity) <= ORDER.indexOf(least as Severity));
}

function answer(input: Input): object {
  const rules = wanted(input);
  const { files, skipped } = given(input);
  const found: Finding[] = [];
  for (const one of files) {
    const made = one.content.length > MOST_CHARACTERS ? undefined : review(one, rules);
    if (made) found.push(...made);
    else skipped.push(one.path);
  }
  const all = sorted(kept(input, found));
  const most = input.max_findings ?? 200;
  if (typeof most !== "number" || most < 0) throw new WrongInput("max_findings must be a number");
  const by = Object.fromEntries(ORDER.map((name) => [name, all.filter((one) => one.severity === name).length]));
  return { findings: all.slice(0, most), summary: { files: files.length, findings: all.length, ...by }, skipped };
}

function main(): void {
  try {
    const input: unknown = JSON.parse(readFileSync(0, "utf8") || "null");
    if (input === null || typeof input !== "object" || Array.isArray(input)) throw new WrongInput("the input must be a JSON object");
    console.log(JSON.stringify(answer(input as Input), null, 2));
  } catch (error) {
    if (!(error instanceof WrongInput || error instanceof SyntaxError)) throw error;
    console.error(`code-review: ${error.message}`);
    process.exitCode = 2;
  }
}

main();
