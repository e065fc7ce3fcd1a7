import * as defects from "./defects";
import { languageOf, parse } from "./parse";
import * as security from "./security";
import type { File, Finding, Rule, Severity } from "./types";
import * as upkeep from "./upkeep";

export const RULES: Rule[] = [
  security.secret, security.evaluation, security.shellCommand, security.sqlText, security.dangerousCall, security.shellScript,
  defects.missingAwait, defects.bareExcept, defects.swallowed, defects.mutableDefault, defects.identity, defects.assertTuple, defects.looseEquality, defects.conflict,
  upkeep.unusedImport, upkeep.longFunction, upkeep.deepNesting, upkeep.todo, upkeep.debugOutput,
];
export const ORDER: Severity[] = ["high", "medium", "low"];
const SILENCED = /review:\s*ignore(?:\[([\w, -]+)\])?/;

/** Findings of one file; undefined for a file in a language that is not known. */
export function review(file: File, rules: Rule[] = RULES): Finding[] | undefined {
  const language = languageOf(file.path);
  if (!language) return undefined;
  const parsed = parse(file, language);
  const found: Finding[] = [];
  for (const rule of rules) {
    if (rule.languages && !rule.languages.includes(language)) continue;
    rule.run(parsed, (line, message, severity = rule.severity) => {
      if (!silenced(parsed.lines[line - 1] ?? "", rule.name)) found.push({ path: file.path, line, rule: rule.name, severity, message });
    });
  }
  const seen = new Set<string>();
  return found.filter((one) => {
    const key = `${one.line} ${one.rule} ${one.message}`;
    return !seen.has(key) && seen.add(key);
  });
}

function silenced(line: string, rule: string): boolean {
  const found = SILENCED.exec(line);
  return Boolean(found) && (!found![1] || found![1].split(",").some((one) => one.trim() === rule));
}

export function sorted(found: Finding[]): Finding[] {
  const place = (one: Finding): [string, number, number] => [one.path, one.line, ORDER.indexOf(one.severity)];
  return [...found].sort((left, right) => {
    const [one, other] = [place(left), place(right)];
    if (one[0] !== other[0]) return one[0] < other[0] ? -1 : 1;
    return one[1] - other[1] || one[2] - other[2] || (left.rule < right.rule ? -1 : 1);
  });
}
