// A script that ends by calling its main function: what that gives is waited for, so that a promise
// that is rejected ends the program as an error, as it does in node.

// A call after something else on the same line, or one whose arguments are simple.
const LAST = /(^|[;}\n])([ \t]*)((?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*\([^()'"`/]*\))[ \t]*;?\s*$/;
const CALL = /^(?:(?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*\(|\((?:async\b|function\b|\(\)))/;
const NO_CALL = /^(if|for|while|switch|catch|function|super|require|with)\b/;
const WITHIN = /^(?:[\s})\].]|$)/; // how a line goes on with what began at the margin

export function awaited(source) {
  const found = LAST.exec(source);
  if (!found) return wrapped(source);
  if (NO_CALL.test(found[3])) return source;
  const at = found.index + found[1].length;
  return `${source.slice(0, at)}${found[2]}await ${found[3]};\n`;
}

// In parentheses it means what it meant, or it can not be read: whoever asks sees to that.
function wrapped(source) {
  const lines = source.split("\n");
  while (lines.length && /^(?:\/\/|\s*$)/.test(lines.at(-1))) lines.pop();
  let first = lines.length - 1;
  while (first > 0 && WITHIN.test(lines[first])) first--;
  const last = lines.splice(first).join("\n").trimEnd();
  if (!CALL.test(last) || NO_CALL.test(last) || !/\);?$/.test(last)) return source;
  // Without a semicolon it would be one with the line before.
  if (last.startsWith("(") && !/^$|[;}]$/.test(lines.join("\n").trimEnd())) return source;
  return `${lines.map((line) => `${line}\n`).join("")}await (${last.replace(/;$/, "")}\n);\n`;
}
