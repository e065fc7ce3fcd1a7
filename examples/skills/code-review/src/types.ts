export type Severity = "high" | "medium" | "low";

export interface File {
  path: string;
  content: string;
}

export interface Finding {
  path: string;
  line: number;
  rule: string;
  severity: Severity;
  message: string;
}

export type Language = "python" | "javascript" | "c" | "go" | "java" | "shell" | "other";

/** A literal or a comment, with the place where it starts. */
export interface Piece {
  start: number;
  end: number;
  line: number;
  text: string;
}

/** A file taken apart. In `code` all comments and the insides of literals are blank. */
export interface Parsed {
  path: string;
  language: Language;
  raw: string;
  lines: string[];
  code: string;
  codeLines: string[];
  strings: Piece[];
  comments: Piece[];
  /** The line of a place in the text, and the place where a line starts; lines count from 1. */
  lineAt(offset: number): number;
  startOf(line: number): number;
}

export type Report = (line: number, message: string, severity?: Severity) => void;

export interface Rule {
  name: string;
  severity: Severity;
  languages?: Language[];
  run(file: Parsed, report: Report): void;
}
